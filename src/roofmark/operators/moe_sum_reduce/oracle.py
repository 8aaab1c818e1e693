"""The judge's side of `moe_sum_reduce`: float64 values of chosen rows, and a right kernel's error."""

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
# A dozen float32 sums in any order, relative to the sum of sizes: each is off by 2**-24 at most.
FLOAT32 = 2.0**-20
# Products below the normal range of float32 may be flushed.
FLUSHED = 2.0**-120


def neighbours(rng: random.Random, **sizes: Any) -> tuple[dict[str, Any], dict[str, Any]]:
    first, second = near(rng, sizes["token_count"])
    return {**sizes, "token_count": first}, {**sizes, "token_count": second}


def expected_rows(inputs: Mapping[str, Tensor], sizes: Mapping[str, Any], index: Tensor) -> dict[str, Expected]:
    """`y` of the rows `index`.

    Bound: the deployed kernel adds up in float32 and rounds once, on the store; so one rounding of the output's
    type, relative to y, and float32's own errors, relative to the sum of sizes.
    """
    x = inputs["x"]
    factor = sizes["routed_scaling_factor"]
    value = torch.empty((len(index), x.shape[2]), dtype=torch.float64, device=x.device)
    bound = torch.empty_like(value)
    for part in chunks(len(index), 16 * x[:1].numel()):
        terms = x[index[part]].double() * factor
        value[part] = terms.sum(1)
        bound[part] = ROUNDING * value[part].abs() + FLOAT32 * terms.abs().sum(1) + FLUSHED
    return {"y": Expected(value, bound)}
