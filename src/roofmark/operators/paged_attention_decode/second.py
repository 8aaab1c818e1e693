"""Decode attention page by page: each page has a softmax of its own, and these are merged by their maxima and sums."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

# Elements of keys that are held in float32 at a time.
ELEMENTS = 1 << 26

Pages = tuple[Tensor, Tensor, Tensor]


def second(inputs: Mapping[str, Tensor], sizes: Mapping[str, Any]) -> Tensor:
    """The mean of each sequence's values under the softmax; zeros where a sequence has no tokens."""
    query, table, lens = inputs["query"], inputs["block_tables"], inputs["context_lens"]
    _, kv_heads, parts, slots, width = inputs["key_cache"].shape
    step = max(1, ELEMENTS // (len(query) * kv_heads * slots * parts * width))
    # the scale and the base of exp2 go into the queries
    q = query.float().mul_(math.log2(math.e) / math.sqrt(parts * width)).view(len(query), kv_heads, -1, parts, width)
    merged: Pages | None = None
    for start in range(0, table.shape[1], step):
        pages = table[:, start : start + step].long()
        place = torch.arange(start * slots, (start + pages.shape[1]) * slots, device=lens.device).view(1, -1, slots)
        live = place < lens.view(-1, 1, 1)
        of_pages = _pages(q, inputs["key_cache"][pages], inputs["value_cache"][pages], live)
        new = _merge(*of_pages)
        merged = new if merged is None else _merge(*(torch.stack(pair, 1) for pair in zip(merged, new, strict=True)))
    assert merged is not None
    _, total, weighted = merged
    out = weighted / torch.where(total > 0, total, 1.0).unsqueeze(-1)
    return out.reshape(query.shape).to(query.dtype)


def _pages(q: Tensor, k: Tensor, v: Tensor, live: Tensor) -> Pages:
    """The largest logit, the sum of weights and of weighted values of each page: [n, page, kv head, group, (d)]."""
    logits = torch.einsum("nhgci,nwhcsi->nwhgs", q, k.float())
    logits = torch.where(live[:, :, None, None], logits, -torch.inf)
    largest = logits.amax(-1)
    weights = torch.exp2(logits - _finite(largest).unsqueeze(-1))
    return largest, weights.sum(-1), torch.einsum("nwhgs,nwhds->nwhgd", weights, v.float())


def _merge(largest: Tensor, total: Tensor, weighted: Tensor) -> Pages:
    """One softmax of those along dimension 1."""
    most = largest.amax(1)
    factor = torch.exp2(largest - _finite(most).unsqueeze(1))
    return most, (factor * total).sum(1), (factor.unsqueeze(-1) * weighted).sum(1)


def _finite(largest: Tensor) -> Tensor:
    """0 for the maximum of nothing, so that nothing is taken off -inf."""
    return torch.where(largest > -torch.inf, largest, 0.0)
