"""Triton: kernels for NVIDIA GPUs. Triton leaves its cubins in its own cache; the probe copies those reached."""

from __future__ import annotations

from pathlib import Path

from roofmark.backends import Backend

BACKEND = Backend(
    name="triton",
    modules=("triton",),
    devices=("cuda",),
    artefact_suffixes=(".cubin",),
    probe=Path(__file__).with_name("triton_probe.py"),
    install="make dev, or pip install 'roofmark[triton]'",
    environment={
        "TRITON_CACHE_DIR": "{cache}/triton",
        "TRITON_DEFAULT_FP_FUSION": "1",
        "KINETO_LOG_LEVEL": "9",
    },
)
