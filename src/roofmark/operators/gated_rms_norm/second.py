"""A second `gated_rms_norm`: root and gate in one exponential, squares summed by a product with a column of ones.

sigma(z) / sqrt(m) = exp(-(log(1 + exp(-z)) + log(m) / 2)), which neither overflows for a gate far below zero nor
cancels; x, weight and z are multiplied on afterwards. All in float64, rounded once.
"""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

from roofmark.operators import Sizes

# Numbers that are worked on at a time.
PIECE = 1 << 24


def second(inputs: Mapping[str, Tensor], sizes: Sizes) -> Tensor:
    x, gate, weight = inputs["x"], inputs["z"], inputs["weight"].double()
    count, width = x.shape
    ones = torch.ones((width, 1), dtype=torch.float64, device=x.device)
    nought = torch.zeros((), dtype=torch.float64, device=x.device)
    out = torch.empty_like(x)
    step = max(1, PIECE // width)
    for start in range(0, count, step):
        rows = slice(start, start + step)
        value, z = x[rows].double(), gate[rows].double()
        mean = (value.square() @ ones) / width
        share = torch.logaddexp(nought, -z).add_(0.5 * torch.log(mean + sizes["eps"])).neg_().exp_()
        out[rows] = share.mul_(z).mul_(value).mul_(weight).to(x.dtype)
    return out
