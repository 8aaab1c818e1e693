"""The judge's side of `layer_norm`: float64 values of chosen rows, and a right kernel's error."""

from __future__ import annotations

import random
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from roofmark.operators.draw import chunks, near
from roofmark.operators.expected import Expected

EPS = 1e-5
# Half a unit in the last place of bfloat16, relative.
ROUNDING = torch.finfo(torch.bfloat16).eps / 2
# float32 sums in any order, an approximate reciprocal root: far below the rounding of the output.
FLOAT32 = 2.0**-16
# The mean in float32, relative to the mean size of the elements: some ten steps of joining parts.
MEAN = 2.0**-20
# Products below the normal range of float32 may be flushed.
FLUSHED = 2.0**-120


def neighbours(rng: random.Random, **sizes: Any) -> tuple[dict[str, Any], dict[str, Any]]:
    rows, *rest = sizes["shape"]
    first, second = near(rng, rows)
    return {"shape": [first, *rest]}, {"shape": [second, *rest]}


def expected_rows(inputs: Mapping[str, Tensor], sizes: Mapping[str, Any], index: Tensor) -> dict[str, Expected]:
    """`y` of the rows `index` of the leading dimension.

    Bound: the deployed kernel stays in float32 and rounds once, on the store; so one rounding of the output's
    type, relative to y, and float32's own errors in the mean and in the two terms of y.
    """
    x = inputs["x"]
    weight, bias = inputs["weight"].double(), inputs["bias"].double()
    value = torch.empty((len(index), *x.shape[1:]), dtype=torch.float64, device=x.device)
    bound = torch.empty_like(value)
    for part in chunks(len(index), 32 * x[:1].numel()):
        rows = x[index[part]].double()
        centred = rows - rows.mean(-1, keepdim=True)
        inverse = (centred.square().mean(-1, keepdim=True) + EPS).rsqrt()
        scaled = centred * inverse * weight
        value[part] = scaled + bias
        mean_error = MEAN * rows.abs().mean(-1, keepdim=True) * inverse * weight.abs()
        bound[part] = ROUNDING * value[part].abs() + FLOAT32 * (scaled.abs() + bias.abs()) + mean_error + FLUSHED
    return {"y": Expected(value, bound)}
