"""A second `fused_add_rms_norm`: the sum's length from the lengths and the product of its terms, before they are added.

sum of (x + r)^2 = x.x + 2 x.r + r.r, the entries of the 2 by 2 Gram matrix of a row, in float64: products of two
bfloat16 are exact there, and where the terms cancel what is left is still known to 2^-40 of them and better. Both
answers are written over the inputs.
"""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

from roofmark.operators import Sizes

# Numbers of one term that are worked on at a time.
PIECE = 1 << 24


def second(inputs: Mapping[str, Tensor], sizes: Sizes) -> tuple[Tensor, Tensor]:
    x, residual, weight = inputs["x"], inputs["residual"], inputs["weight"].double()
    width = x.shape[1]
    step = max(1, PIECE // width)
    for start in range(0, x.shape[0], step):
        rows = slice(start, start + step)
        terms = torch.stack((x[rows], residual[rows]), 1).double()
        square = torch.bmm(terms, terms.mT).sum((1, 2)).clamp_(min=0.0)
        root = (square / width + sizes["eps"]).sqrt_()
        total = terms.sum(1)
        residual[rows] = total.to(residual.dtype)
        x[rows] = (total * weight).div_(root.unsqueeze(-1)).to(x.dtype)
    return x, residual
