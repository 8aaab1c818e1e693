"""Causal attention over a paged cache, tiles of rows side by side, each from its newest tokens back to its first."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

# Rows of a tile, all of one sequence; tokens met at a time, as many or more; elements held in float32 at a time.
ROWS, TOKENS, ELEMENTS = 64, 256, 1 << 26


def second(inputs: Mapping[str, Tensor], sizes: Mapping[str, Any]) -> Tensor:
    """The mean of the values that each row sees, under the softmax of its logits."""
    q = inputs["q"]
    kv_heads = inputs["key_cache"].shape[2]
    tiles = _tiles(inputs["cu_seqlens_q"].long(), inputs["seqused_k"].long())
    out = torch.empty_like(q)
    # of a tile: keys and values, logits and weights, queries and results
    each = kv_heads * 2 * TOKENS * q.shape[2] + q.shape[1] * ROWS * 2 * (TOKENS + q.shape[2])
    step = max(1, ELEMENTS // each)
    # tiles of like length side by side, the longest first: those that are through stand at the end
    order = tiles["last"].argsort(descending=True)
    for start in range(0, len(order), step):
        some = order[start : start + step]
        _attend({name: column[some] for name, column in tiles.items()}, inputs, out)
    return out


def _tiles(bounds: Tensor, tokens: Tensor) -> dict[str, Tensor]:
    """Of each tile the sequence, the first and the last row of q, and the token that the last row is."""
    counts = bounds.diff()
    tiles = -(-counts // ROWS)
    sequence = torch.arange(len(tokens), device=tokens.device).repeat_interleave(tiles)
    number = torch.arange(len(sequence), device=tokens.device) - (tiles.cumsum(0) - tiles)[sequence]
    begin = bounds[:-1][sequence] + number * ROWS
    end = torch.minimum(begin + ROWS, bounds[1:][sequence]) - 1
    return {"sequence": sequence, "begin": begin, "end": end, "last": (tokens - bounds[1:])[sequence] + end}


def _attend(tiles: Mapping[str, Tensor], inputs: Mapping[str, Tensor], out: Tensor) -> None:
    """Writes the rows of these tiles, whose last tokens do not rise from tile to tile."""
    q, key, value = (inputs[name] for name in ("q", "key_cache", "value_cache"))
    (_, size, kv_heads, width), count = key.shape, len(tiles["end"])
    # rows counted from a tile's last; those that it does not have repeat its first
    back = torch.minimum(torch.arange(ROWS, device=q.device), (tiles["end"] - tiles["begin"]).unsqueeze(1))
    rows = tiles["end"].unsqueeze(1) - back
    heads = q[rows].float().mul_(math.log2(math.e) / math.sqrt(width)).view(count, ROWS, kv_heads, -1, width)
    queries = heads.permute(0, 2, 1, 3, 4).flatten(2, 3)  # [tile, kv head, row and query head of its group, d]
    seen = (tiles["last"].unsqueeze(1) - back).repeat_interleave(q.shape[1] // kv_heads, 1)[:, None, :, None]
    largest = torch.full((*queries.shape[:3], 1), -torch.inf, device=q.device)
    total, weighted = torch.zeros_like(largest), torch.zeros_like(queries)
    last = tiles["last"].tolist()
    for far in range(0, last[0] + 1, TOKENS):
        live = sum(end >= far for end in last)
        token = tiles["last"][:live].unsqueeze(1) - far - torch.arange(TOKENS, device=q.device)
        place = token.clamp(min=0)
        block = inputs["block_table"][tiles["sequence"][:live].unsqueeze(1), place // size].long()
        keys, values = (cache[block, place % size].transpose(1, 2).float() for cache in (key, value))
        met = token[:, None, None, :]
        logits = (queries[:live] @ keys.mT).masked_fill_((met < 0) | (met > seen[:live]), -torch.inf)
        new = torch.maximum(largest[:live], logits.amax(-1, keepdim=True))
        # a row's own token is among the first that are met, for a tile has no more rows: no maximum is -inf
        weights, fade = logits.sub_(new).exp2_(), torch.exp2(largest[:live] - new)
        largest[:live] = new
        total[:live] = total[:live] * fade + weights.sum(-1, keepdim=True)
        weighted[:live] = weighted[:live] * fade + weights @ values
    made = weighted.div_(total).view(count, kv_heads, ROWS, -1, width).transpose(1, 2)
    out[rows] = made.flatten(2, 3).to(out.dtype)  # repeated rows are alike
