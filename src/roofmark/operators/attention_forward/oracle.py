"""The judge's side of `attention_forward`: float64 values of chosen rows, and a right kernel's error."""

from __future__ import annotations

import random
from collections.abc import Mapping
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor

from roofmark.operators.draw import chunks, near
from roofmark.operators.expected import Expected

# Half a unit in the last place of bfloat16, relative.
ROUNDING = torch.finfo(torch.bfloat16).eps / 2
# float32 logits, exponentials and sums, relative to the sum of p |v|: far below the roundings.
FLOAT32 = 2.0**-13
# Probabilities below the normal range of float32 may be flushed.
FLUSHED = 2.0**-100
BUDGET = 1 << 26


def neighbours(rng: random.Random, **sizes: Any) -> tuple[dict[str, Any], dict[str, Any]]:
    """One sequence of about the same length, and two short ragged ones."""
    first, second = near(rng, max(sizes["seq_lens"]))
    cut = rng.randrange(1, second)
    return {**sizes, "seq_lens": [first]}, {**sizes, "seq_lens": [cut, second - cut]}


def expected_rows(inputs: Mapping[str, Tensor], sizes: Mapping[str, Any], index: Tensor) -> dict[str, Expected]:
    """`out` of the rows `index`; work and memory grow with the rows asked for times the sequence's length.

    Bound: the probabilities, relative to the largest, may be rounded to bfloat16 before the product with v,
    as deployed kernels do, or not; then the output is rounded. Both products add up in float32.
    """
    q, k, v = inputs["q"], inputs["k"], inputs["v"]
    value = torch.empty((len(index), *q.shape[1:]), dtype=torch.float64, device=q.device)
    spread = torch.empty_like(value)
    for start, end in pairwise(inputs["cu_seqlens"].tolist()):
        rows = ((index >= start) & (index < end)).nonzero().flatten()
        if len(rows):
            _attend(q[index[rows]], k[start:end], v[start:end], rows, (value, spread))
    bound = spread.mul_(ROUNDING + FLOAT32).add_(value.abs(), alpha=ROUNDING).add_(FLUSHED)
    return {"out": Expected(value, bound)}


def _attend(q: Tensor, k: Tensor, v: Tensor, rows: Tensor, sums: tuple[Tensor, Tensor]) -> None:
    """Fill `sums`, of p v and of p |v|, at `rows`, some heads and rows at a time."""
    value, spread = sums
    length, num_heads, head_dim = k.shape
    for heads in chunks(num_heads, 24 * length * head_dim, budget=BUDGET):
        wide_k = k[:, heads].double().permute(1, 2, 0)
        wide_v = v[:, heads].double().transpose(0, 1)
        for part in chunks(len(rows), 24 * length * len(wide_k), budget=BUDGET):
            logits = q[part, heads].double().transpose(0, 1) @ wide_k
            p = torch.softmax(logits.mul_(head_dim**-0.5), dim=-1)
            value[rows[part], heads] = (p @ wide_v).transpose(0, 1)
            spread[rows[part], heads] = (p @ wide_v.abs()).transpose(0, 1)
