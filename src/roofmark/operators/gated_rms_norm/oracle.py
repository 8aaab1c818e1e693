"""The judge's side of `gated_rms_norm`: float64 values of chosen rows, and a right kernel's error."""

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
# float32 sums, a fast exponential and division, relative to y: far below the rounding of the output.
FLOAT32 = 2.0**-14
# A sigmoid in float32, absolute: one built on tanh has no small relative error where it is near 0.
SIGMOID = 2.0**-22
# Products below the normal range of float32 may be flushed.
FLUSHED = 2.0**-120


def neighbours(rng: random.Random, **sizes: Any) -> tuple[dict[str, Any], dict[str, Any]]:
    first, second = near(rng, sizes["rows"])
    return {**sizes, "rows": first}, {**sizes, "rows": second}


def expected_rows(inputs: Mapping[str, Tensor], sizes: Mapping[str, Any], index: Tensor) -> dict[str, Expected]:
    """`y` of the rows `index`.

    Bound: the deployed kernel stays in float32 and rounds once, on the store; so one rounding of the output's
    type, relative to y, and float32's own errors.
    """
    weight = inputs["weight"].double()
    value = torch.empty((len(index), weight.numel()), dtype=torch.float64, device=weight.device)
    bound = torch.empty_like(value)
    for part in chunks(len(index), 32 * weight.numel()):
        x, z = (inputs[name][index[part]].double() for name in ("x", "z"))
        ungated = x / torch.sqrt(x.square().mean(-1, keepdim=True) + sizes["eps"]) * weight * z
        value[part] = ungated * torch.sigmoid(z)
        bound[part] = value[part].abs() * (ROUNDING + FLOAT32) + ungated.abs() * SIGMOID + FLUSHED
    return {"y": Expected(value, bound)}
