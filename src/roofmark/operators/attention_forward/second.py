"""Attention over packed sequences with keys outermost: each tile of keys updates the running softmax of all rows."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

# Logits of a tile, and the most rows and keys of one.
LOGITS, TILE = 1 << 26, 2048


def second(inputs: Mapping[str, Tensor], sizes: Mapping[str, Any]) -> Tensor:
    """The mean of the values of a row's own sequence under the softmax of its logits."""
    # heads first; the scale and the base of exp2 go into the queries
    q, k, v = (inputs[name].transpose(0, 1) for name in ("q", "k", "v"))
    heads, rows, width = q.shape
    bounds = inputs["cu_seqlens"]
    sequence = torch.searchsorted(bounds, torch.arange(rows, device=q.device, dtype=bounds.dtype), right=True)
    queries = q.float().mul_(math.log2(math.e) / math.sqrt(width))
    running = (
        torch.full((heads, rows, 1), -torch.inf, device=q.device),
        torch.zeros(heads, rows, 1, device=q.device),
        torch.zeros(heads, rows, width, device=q.device),
    )
    step = max(1, min(TILE, math.isqrt(LOGITS // heads)))
    tiles = [slice(start, min(start + step, rows)) for start in range(0, rows, step)]
    ends = [(int(sequence[tile.start]), int(sequence[tile.stop - 1])) for tile in tiles]
    for keys, (first, last) in zip(tiles, ends, strict=True):
        k_tile, v_tile = k[:, keys].float(), v[:, keys].float()
        for part, (low, high) in zip(tiles, ends, strict=True):
            if low <= last and first <= high:  # some sequence has rows in both
                same = None if low == high == first == last else sequence[part, None] == sequence[None, keys]
                _update([state[:, part] for state in running], queries[:, part] @ k_tile.mT, same, v_tile)
    _, total, weighted = running
    return weighted.div_(total).transpose(0, 1).to(inputs["q"].dtype).contiguous()


def _update(running: list[Tensor], logits: Tensor, same: Tensor | None, values: Tensor) -> None:
    """Takes one tile of keys into the maximum, the sum and the weighted values of some rows, in place."""
    largest, total, weighted = running
    if same is not None:
        logits.masked_fill_(~same, -torch.inf)
    new = torch.maximum(largest, logits.amax(-1, keepdim=True))
    base = torch.where(new > -torch.inf, new, 0.0)  # a row that has met no key of its own yet
    weights = logits.sub_(base).exp2_()
    fade = torch.exp2(largest - base)
    largest.copy_(new)
    total.mul_(fade).add_(weights.sum(-1, keepdim=True))
    weighted.mul_(fade).add_(weights @ values)
