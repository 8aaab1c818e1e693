"""A second `fused_rmsnorm_quant`: codes of r · weight without the root, which cancels out of them.

y and its largest have the root in common, so q = r · weight over its largest, times fp8_max; only the scale needs the
root. The sum of squares is one of pairs, of the unrounded r, which is taken against the largest of the row.
"""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

from roofmark.operators import Sizes, fp8

EPS = 1e-6
# Numbers that are worked on at a time.
PIECE = 1 << 25


def second(inputs: Mapping[str, Tensor], sizes: Sizes) -> tuple[Tensor, Tensor, Tensor]:
    x, residual, weight = inputs["x"], inputs["residual"], inputs["weight"].float()
    tokens, width = x.shape
    kind = fp8.kind(x.device)
    top = float(torch.finfo(kind).max)
    q = torch.empty(x.shape, dtype=kind, device=x.device)
    scale = torch.empty(tokens, dtype=torch.float32, device=x.device)
    step = max(1, PIECE // width)
    for start in range(0, tokens, step):
        rows = slice(start, start + step)
        total = x[rows].float() + residual[rows].float()
        inverse = torch.rsqrt(mean_square(total) + EPS)
        residual[rows] = total.to(torch.bfloat16)
        total *= weight
        most = total.abs().amax(-1)
        scale[rows] = most * inverse / top
        share = total / torch.where(most > 0, most, 1.0).unsqueeze(-1)
        q[rows] = (share * top).clamp_(-top, top).to(kind)
    return q, scale, residual


def mean_square(values: Tensor) -> Tensor:
    """The mean of squares along the last dimension, by sums of pairs of a half each; squares are of at most 1."""
    most = values.abs().amax(-1)
    sums = (values / torch.where(most > 0, most, 1.0).unsqueeze(-1)).square_()
    while sums.shape[-1] > 1:
        half = sums.shape[-1] // 2
        pairs = sums[..., :half] + sums[..., half : 2 * half]
        if sums.shape[-1] % 2:
            pairs[..., :1] += sums[..., -1:]
        sums = pairs
    return sums.squeeze(-1) / values.shape[-1] * most.square()
