"""The judge's side of `block_scaled_mm`: float64 values of chosen rows, and a right kernel's error."""

from __future__ import annotations

import random
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from roofmark.operators import fp8
from roofmark.operators.draw import chunks, near
from roofmark.operators.expected import Expected

# Half a unit in the last place of bfloat16, relative.
ROUNDING = torch.finfo(torch.bfloat16).eps / 2
# fp8 tensor cores cut products and partial sums some 13 bits below the largest of a step. Signs are random, so
# what is lost adds up as squares. In such bits of the root of the sum of squared products an H200, with blocks
# of 128 added up in float32, was off by 2 as a standard deviation and 16 at most over 8 million outputs, and
# by 25 where a single block held all products.
PRODUCTS = 40 * 2.0**-13


def neighbours(rng: random.Random, **sizes: Any) -> tuple[dict[str, Any], dict[str, Any]]:
    first, second = near(rng, sizes["m"])
    return {**sizes, "m": first}, {**sizes, "m": second}


def expected_rows(inputs: Mapping[str, Tensor], sizes: Mapping[str, Any], index: Tensor) -> dict[str, Expected]:
    """`out` of the rows `index`, some rows and columns at a time.

    Bound: one rounding to bfloat16, and what tensor cores lose in sums of products.
    """
    a, b = inputs["a"], inputs["b"]
    n, k = b.shape
    group_n, group_k = sizes["group_n"], sizes["group_k"]
    value = torch.empty((len(index), n), dtype=torch.float64, device=a.device)
    bound = torch.empty_like(value)
    for groups in chunks(n // group_n, 24 * group_n * k):
        columns = slice(groups.start * group_n, groups.stop * group_n)
        scales = inputs["b_scales"][groups].repeat_interleave(group_n, 0)
        right = _scaled(b[columns], scales, group_k)
        for rows in chunks(len(index), 24 * k):
            left = _scaled(a[index[rows]], inputs["a_scales"][index[rows]], group_k)
            value[rows, columns] = left @ right.T
            bound[rows, columns] = (left.square() @ right.square().T).sqrt_().mul_(PRODUCTS)
    bound.add_(value.abs(), alpha=ROUNDING)
    return {"out": Expected(value, bound)}


def _scaled(codes: Tensor, scales: Tensor, group_k: int) -> Tensor:
    """The matrix that fp8 codes and their scales stand for, float64."""
    rows, columns = codes.shape
    blocks = fp8.wide(codes).double().view(rows, -1, group_k) * scales.double().view(rows, -1, 1)
    return blocks.view(rows, columns)
