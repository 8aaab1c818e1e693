"""The judge's side of `rms_norm`: float64 values of chosen rows, and a right kernel's error."""

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
# float32 sums in any order, an approximate reciprocal root: far below the rounding of the output.
FLOAT32 = 2.0**-16
# Products below the normal range of float32 may be flushed.
FLUSHED = 2.0**-120


def neighbours(rng: random.Random, **sizes: Any) -> tuple[dict[str, Any], dict[str, Any]]:
    first, second = near(rng, sizes["token_count"])
    return {**sizes, "token_count": first}, {**sizes, "token_count": second}


def expected_rows(inputs: Mapping[str, Tensor], sizes: Mapping[str, Any], index: Tensor) -> dict[str, Expected]:
    """`y` of the rows `index`.

    Bound: the product with the weight may follow a rounding of x / rms to bfloat16, as the deployed kernel
    does, or not; so two roundings of the output's type, relative to y, and float32's own errors.
    """
    weight = inputs["weight"].double()
    value = torch.empty((len(index), weight.numel()), dtype=torch.float64, device=weight.device)
    for part in chunks(len(index), 8 * weight.numel()):
        x = inputs["x"][index[part]].double()
        mean_square = x.square().mean(-1, keepdim=True)
        value[part] = x / torch.sqrt(mean_square + sizes["eps"]) * weight
    bound = value.abs().mul_(2 * ROUNDING + ROUNDING**2 + FLOAT32).add_(FLUSHED)
    return {"y": Expected(value, bound)}
