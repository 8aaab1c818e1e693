"""The judge's side of `fused_add_rms_norm`: float64 values of chosen rows, and a right kernel's error."""

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
    """`out` and `residual` of the rows `index`.

    Bound of the residual: one rounding. Of out: the product with the weight may follow a rounding of r / rms to
    bfloat16, as the deployed kernel does, or not, so two roundings and float32's own errors; and both r and its
    root mean square may be of the sum, or of the sum as stored, so what that rounding changes in either.
    """
    weight = inputs["weight"].double()
    shape = (len(index), weight.numel())
    out, out_bound, total = (torch.empty(shape, dtype=torch.float64, device=weight.device) for _ in range(3))
    for part in chunks(len(index), 32 * weight.numel()):
        rows = index[part]
        exact = inputs["x"][rows].double() + inputs["residual"][rows].double()
        stored = exact.to(torch.bfloat16).double()
        scale, scale_of_stored = ((r.square().mean(-1, keepdim=True) + sizes["eps"]).rsqrt() for r in (exact, stored))
        total[part] = exact
        out[part] = exact * scale * weight
        moved = (stored - exact).abs() * scale + stored.abs() * (scale_of_stored - scale).abs()
        out_bound[part] = moved * weight.abs() * (1 + 2 * ROUNDING)
    out_bound.add_(out.abs(), alpha=2 * ROUNDING + ROUNDING**2 + FLOAT32).add_(FLUSHED)
    return {"out": Expected(out, out_bound), "residual": Expected(total, total.abs().mul_(ROUNDING).add_(FLUSHED))}
