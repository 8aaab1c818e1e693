"""The judge's side of `linear_sigmoid_mul`: float64 values of chosen rows, and a right kernel's error."""

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
# Sums of products in float32, cut rather than rounded, relative to the lengths of both rows.
PRODUCTS = 2.0**-18
# A fast float32 exponential and division, relative to y: far below the rounding of the output.
FLOAT32 = 2.0**-14
# A sigmoid in float32, absolute: one built on tanh has no small relative error where it is near 0.
SIGMOID = 2.0**-22
# Products below the normal range of float32 may be flushed.
FLUSHED = 2.0**-120


def neighbours(rng: random.Random, **sizes: Any) -> tuple[dict[str, Any], dict[str, Any]]:
    first, second = near(rng, sizes["token_count"])
    return {**sizes, "token_count": first}, {**sizes, "token_count": second}


def expected_rows(inputs: Mapping[str, Tensor], sizes: Mapping[str, Any], index: Tensor) -> dict[str, Expected]:
    """`y` of the rows `index`, some rows and columns at a time.

    Bound: what is deployed rounds z and its sigmoid to bfloat16; so what a rounding of z moves the sigmoid, two
    roundings relative to y, and float32's own errors. Each may be left out.
    """
    x, weight, m = inputs["x"], inputs["weight"], inputs["m"]
    value = torch.empty((len(index), m.shape[1]), dtype=torch.float64, device=x.device)
    bound = torch.empty_like(value)
    for columns in chunks(weight.shape[0], 16 * weight.shape[1]):
        right, bias = weight[columns].double(), inputs["bias"][columns].double()
        place = columns if len(weight) == m.shape[1] else slice(None)  # one gate for all
        for rows in chunks(len(index), 8 * max(weight.shape[1], 8 * len(bias), 4 * m.shape[1])):
            left, factor = x[index[rows]].double(), m[index[rows], place].double()
            z = left @ right.T + bias
            move = z.abs() * ROUNDING
            move += PRODUCTS * (left.norm(dim=-1, keepdim=True) * right.norm(dim=-1) + bias.abs())
            # a slope of the sigmoid inside `move` of z is at most exp(move) times the one at z
            moved = torch.sigmoid(z) * torch.sigmoid(-z) * move * move.exp()
            value[rows, place] = factor * torch.sigmoid(z)
            bound[rows, place] = factor.abs() * (moved * (1 + 3 * ROUNDING) + SIGMOID) + FLUSHED
    bound.add_(value.abs(), alpha=2 * ROUNDING + ROUNDING**2 + FLOAT32)
    return {"y": Expected(value, bound)}
