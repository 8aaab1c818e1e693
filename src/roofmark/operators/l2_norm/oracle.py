"""The judge's side of `l2_norm`: float64 values of chosen rows, and a right kernel's error."""

from __future__ import annotations

import random
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from roofmark.operators.draw import chunks, near
from roofmark.operators.expected import Expected

EPS = 1e-6
# Half a unit in the last place of bfloat16, relative.
ROUNDING = torch.finfo(torch.bfloat16).eps / 2
# float32 sums in any order, an approximate reciprocal root: far below the rounding of the output.
FLOAT32 = 2.0**-16
# Products below the normal range of float32 may be flushed.
FLUSHED = 2.0**-120


def neighbours(rng: random.Random, **sizes: Any) -> tuple[dict[str, Any], dict[str, Any]]:
    first, second = near(rng, sizes["num_tokens"])
    return {**sizes, "num_tokens": first}, {**sizes, "num_tokens": second}


def expected_rows(inputs: Mapping[str, Tensor], sizes: Mapping[str, Any], index: Tensor) -> dict[str, Expected]:
    """`y` of the rows `index`.

    Bound: the deployed kernel stays in float32 and rounds once, on the store; so one rounding of the output's
    type, relative to y, and float32's own errors.
    """
    x = inputs["x"]
    value = torch.empty((len(index), x.shape[1]), dtype=torch.float64, device=x.device)
    for part in chunks(len(index), 16 * x.shape[1]):
        rows = x[index[part]].double()
        value[part] = rows / torch.sqrt(rows.square().sum(-1, keepdim=True) + EPS)
    return {"y": Expected(value, value.abs().mul_(ROUNDING + FLOAT32).add_(FLUSHED))}
