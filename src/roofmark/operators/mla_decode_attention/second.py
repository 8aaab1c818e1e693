"""Absorbed MLA by segments: tiles of all sequences' tokens in one list, two passes, sums scattered to sequences."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import torch
from torch import Tensor

# Tokens of a tile, all of one sequence, and elements of what a pass holds in float32 at a time.
TILE, ELEMENTS = 32, 1 << 26


def second(inputs: Mapping[str, Tensor], sizes: Mapping[str, Any]) -> Tensor:
    """The latents' value parts under the softmax of each head; zeros where a sequence has no tokens."""
    kv = inputs["kv_buffer"].squeeze(1)
    batch, heads, width = inputs["q"].shape
    q = inputs["q"].float().mul_(width**-0.5)
    rank = int(sizes["kv_lora_rank"])
    owner, rows, live = _tiles(inputs["seq_lens"].long(), len(kv))
    logits = torch.empty(len(owner), heads, TILE, device=q.device)
    for part in _parts(len(owner), heads * width):
        logits[part] = torch.bmm(q[owner[part]], kv[rows[part]].float().mT)
    logits.masked_fill_(~live.unsqueeze(1), -torch.inf)

    largest = torch.full((batch, heads), -torch.inf, device=q.device)
    largest.scatter_reduce_(0, owner.view(-1, 1).expand(-1, heads), logits.amax(-1), "amax")
    weights = logits.sub_(largest[owner].unsqueeze(-1)).exp_()
    total = torch.zeros(batch, heads, device=q.device).index_add_(0, owner, weights.sum(-1))
    out = torch.zeros(batch, heads, rank, device=q.device)
    for part in _parts(len(owner), heads * width):
        out.index_add_(0, owner[part], torch.bmm(weights[part], kv[rows[part], :rank].float()))
    return out.div_(torch.where(total > 0, total, 1.0).unsqueeze(-1)).to(inputs["q"].dtype)


def _tiles(lens: Tensor, tokens: int) -> tuple[Tensor, Tensor, Tensor]:
    """Each tile's sequence [n], its tokens' rows of the buffer and which of them there are, both [n, TILE]."""
    counts = -(-lens // TILE)
    owner = torch.arange(len(lens), device=lens.device).repeat_interleave(counts)
    number = torch.arange(len(owner), device=lens.device) - (counts.cumsum(0) - counts)[owner]
    place = number.view(-1, 1) * TILE + torch.arange(TILE, device=lens.device)
    rows = (lens.cumsum(0) - lens)[owner].view(-1, 1) + place
    return owner, rows.clamp_(max=tokens - 1), place < lens[owner].view(-1, 1)


def _parts(tiles: int, elements: int) -> Iterator[slice]:
    """Slices of the tiles, each of which has this many elements."""
    step = max(1, ELEMENTS // elements)
    for start in range(0, tiles, step):
        yield slice(start, start + step)
