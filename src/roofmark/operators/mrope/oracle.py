"""The judge's side of `mrope`: float64 values of chosen rows, and a right kernel's error."""

from __future__ import annotations

import random
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from roofmark.operators.draw import chunks, near
from roofmark.operators.expected import Expected

# Half a unit in the last place of bfloat16, relative.
ROUNDING = torch.finfo(torch.bfloat16).eps / 2
# Two products and a sum in float32, relative to the sizes of the products.
FLOAT32 = 2.0**-22


def neighbours(rng: random.Random, **sizes: Any) -> tuple[dict[str, Any], dict[str, Any]]:
    first, second = near(rng, sizes["token_count"])
    return {**sizes, "token_count": first}, {**sizes, "token_count": second}


def expected_rows(inputs: Mapping[str, Tensor], sizes: Mapping[str, Any], index: Tensor) -> dict[str, Expected]:
    """`q` and `k` of the rows `index`.

    Bound: the deployed kernel keeps float32 up to the store, so one rounding of the output's type, relative to
    it, and what float32 loses where the two products cancel.
    """
    expected = {}
    for name in ("q", "k"):
        x = inputs[name]
        value = torch.empty((len(index), x.shape[1]), dtype=torch.float64, device=x.device)
        bound = torch.empty_like(value)
        for part in chunks(len(index), 48 * x.shape[1]):
            rows = index[part]
            heads = x[rows].double().view(len(rows), -1, sizes["head_size"])
            cos, sin = (_sections(inputs[table][:, rows].double(), sizes["mrope_section"]) for table in ("cos", "sin"))
            value[part] = _turn(heads, cos, sin).flatten(1)
            bound[part] = _turn(heads.abs(), cos.abs(), sin.abs(), sign=1.0).flatten(1)
        expected[name] = Expected(value, bound.mul_(FLOAT32).add_(value.abs(), alpha=ROUNDING))
    return expected


def _sections(table: Tensor, sections: list[int]) -> Tensor:
    """[3, n, d / 2] to [n, 1, d / 2]: section j out of table[j]."""
    parts = torch.split(table, list(sections), dim=-1)
    return torch.cat([part[j] for j, part in enumerate(parts)], dim=-1).unsqueeze(1)


def _turn(x: Tensor, cos: Tensor, sin: Tensor, sign: float = -1.0) -> Tensor:
    first, second = x.chunk(2, dim=-1)
    return torch.cat([first * cos + sign * second * sin, second * cos + first * sin], dim=-1)
