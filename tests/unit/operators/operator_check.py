"""What the tests of the operators share: sizes to run at, and the published figures."""

from __future__ import annotations

import json
import math
import os
from pathlib import Path
from typing import Any

import pytest

from roofmark.operators import Operator, Sizes
from roofmark.records import Shape

NAMES = (
    "attention_forward",
    "block_scaled_mm",
    "moe_topk_gating_softmax",
    "paged_attention_decode",
    "rms_norm",
    "silu_and_mul",
)
SEED = 0x6E3F_90B2_57C1_04D8_A1B6_2C7D_8E9F_1357
# Compulsory bytes a second where the flat rates of `cost` are far off: the least of 12 calls with 1,237 tokens on one
# core, since small products gain little from a second core, and lose where others use it too.
RATES = {"gated_delta_rule_update": 0.19e9}
PRODUCTS = ("attention_forward", "block_scaled_mm", "chunk_delta_rule_output", "chunk_gated_delta_rule_state")
LITTLE_BYTES, LITTLE_FLOPS = 64 << 20, 3e9  # a unit of effort each
MANY_VALUES = 1 << 14
PUBLISHED = Path(os.environ.get("ROOFMARK_PUBLISHED", Path(__file__).resolve().parents[3] / ".." / "shared" / "data"))


def published(name: str) -> list[dict[str, Any]]:
    """The published rows of an operator; skips the test where the figures are not at hand."""
    path = PUBLISHED / "published_shapes.jsonl"
    if not path.is_file():
        pytest.skip(f"no {path}: name its folder in ROOFMARK_PUBLISHED")
    rows = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    return [row for row in rows if row["operator"] == name]


def small_sizes(shape: Shape) -> Sizes:
    """The sizes of a shape on this machine: its stand-in's where it has one."""
    return {**shape.sizes, **(shape.stand_in or {})}


def cost(operator: Operator, sizes: Sizes) -> float:
    """Seconds that the PyTorch reference should take on two CPU cores, for the rule of stand-ins.

    Measured on a shared server: matrix products at 150 GFLOP/s, all else at 0.5 GB of compulsory bytes a second.
    """
    work = operator.work(sizes)
    products = sum(work.flops.values()) / 150e9 if operator.name in PRODUCTS else 0.0
    return work.bytes_total / RATES.get(operator.name, 0.5e9) + products


def telling(operator: Operator) -> Shape:
    """The shape of least work with values enough for any mistake to show; where none has, that of most work."""

    def effort(shape: Shape) -> float:
        work = operator.work(small_sizes(shape))
        return max(work.bytes_total / LITTLE_BYTES, sum(work.flops.values()) / LITTLE_FLOPS)

    order = sorted(operator.shapes, key=effort)
    enough = (shape for shape in order if math.prod(operator.outputs(small_sizes(shape))[0].shape) >= MANY_VALUES)
    return next(enough, order[-1])
