"""numba: kernels that run on any CPU, for the demo, the tests and machines without a GPU."""

from __future__ import annotations

from pathlib import Path

from roofmark.backends import Backend

BACKEND = Backend(
    name="numba",
    modules=("numba",),
    devices=("cpu",),
    artefact_suffixes=(".o",),
    probe=Path(__file__).with_name("numba_probe.py"),
    install="make dev, or pip install 'roofmark[numba]'",
    environment={
        "NUMBA_CACHE_DIR": "{cache}/numba",
        "NUMBA_THREADING_LAYER_PRIORITY": "omp workqueue tbb",
        "KINETO_LOG_LEVEL": "9",
    },
)
