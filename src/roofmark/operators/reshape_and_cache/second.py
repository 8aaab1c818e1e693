"""Keys and values in a paged cache, by a gather: every slot looks its token up in the sorted slots."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

# Slots that are looked up and copied at a time.
SLOTS = 1 << 16


def second(inputs: Mapping[str, Tensor], sizes: Mapping[str, Any]) -> tuple[Tensor, ...]:
    """Both caches, written in place: a slot takes its token's rows, or what it held where no token names it."""
    slots, token = inputs["slot_mapping"].sort()
    caches = tuple(inputs[name] for name in ("key_cache", "value_cache"))
    rows = tuple(cache.view(-1, *cache.shape[2:]) for cache in caches)
    for start in range(0, len(rows[0]), SLOTS):
        every = torch.arange(start, min(start + SLOTS, len(rows[0])), device=slots.device, dtype=slots.dtype)
        place = torch.searchsorted(slots, every).clamp_(max=len(slots) - 1)
        named = (slots[place] == every).view(-1, 1, 1)  # -1 equals no slot
        for row, name in zip(rows, ("key", "value"), strict=True):
            old = row[start : start + SLOTS]
            old.copy_(torch.where(named, inputs[name][token[place]], old))
    return caches
