"""A second `rms_norm`: tiles of columns one after another, each row's sum of squares kept in units of its largest.

As in an online softmax, a row has its largest size so far and the sum of squares over that one's square; a tile with
something larger scales the sum down. No square is larger than 1, whatever x holds.
"""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

from roofmark.operators import Sizes

# Columns of a tile, and numbers that are worked on at a time.
TILE, PIECE = 192, 1 << 25


def second(inputs: Mapping[str, Tensor], sizes: Sizes) -> Tensor:
    x, weight = inputs["x"], inputs["weight"]
    out = torch.empty_like(x)
    step = max(1, PIECE // x.shape[1])
    for start in range(0, x.shape[0], step):
        rows = x[start : start + step]
        inverse = torch.rsqrt(mean_square(rows) + sizes["eps"]).unsqueeze(-1)
        for left in range(0, x.shape[1], TILE):
            columns = slice(left, left + TILE)
            tile = rows[:, columns].float() * inverse * weight[columns].float()
            out[start : start + step, columns] = tile.to(x.dtype)
    return out


def mean_square(rows: Tensor) -> Tensor:
    """The mean of squares of each row, in float32."""
    most = torch.zeros(rows.shape[0], device=rows.device)
    total = torch.zeros_like(most)
    for left in range(0, rows.shape[1], TILE):
        tile = rows[:, left : left + TILE].float()
        larger = torch.maximum(most, tile.abs().amax(-1))
        unit = torch.where(larger > 0, larger, 1.0)
        total = total * (most / unit).square() + (tile / unit.unsqueeze(-1)).square().sum(-1)
        most = larger
    return total / rows.shape[1] * most.square()
