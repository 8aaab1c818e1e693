"""The judge's side of `silu_and_mul`: float64 values of chosen rows, and a right kernel's error."""

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
# A fast float32 exponential and division, relative to y: far below the rounding of the output.
FLOAT32 = 2.0**-14
# A sigmoid in float32, absolute: one built on tanh has no small relative error where it is near 0.
SIGMOID = 2.0**-22
# Products below the normal range of float32 may be flushed.
FLUSHED = 2.0**-120


def neighbours(rng: random.Random, **sizes: Any) -> tuple[dict[str, Any], dict[str, Any]]:
    tokens, width = sizes["shape"]
    first, second = near(rng, tokens)
    return {**sizes, "shape": [first, width]}, {**sizes, "shape": [second, width]}


def expected_rows(inputs: Mapping[str, Tensor], sizes: Mapping[str, Any], index: Tensor) -> dict[str, Expected]:
    """`y` of the rows `index`.

    Bound: silu(gate) may be rounded to bfloat16 before the product, as the deployed kernel does, or not; so
    two roundings of the output's type, relative to y, and float32's own errors.
    """
    x = inputs["x"]
    half = x.shape[1] // 2
    value = torch.empty((len(index), half), dtype=torch.float64, device=x.device)
    bound = torch.empty_like(value)
    for part in chunks(len(index), 16 * half):
        gate, up = x[index[part]].double().chunk(2, dim=-1)
        value[part] = gate * torch.sigmoid(gate) * up
        bound[part] = value[part].abs() * (2 * ROUNDING + ROUNDING**2 + FLOAT32)
        bound[part] += (gate * up).abs() * SIGMOID + FLUSHED
    return {"y": Expected(value, bound)}
