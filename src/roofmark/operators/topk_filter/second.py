"""The largest logits by a radix select: histograms of bytes, from the highest on, give the k-th largest of a row."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

# Logits that are worked off at a time, in whole rows.
LOGITS = 1 << 24
LOWEST = -(2**31)


def second(inputs: Mapping[str, Tensor], sizes: Mapping[str, Any]) -> Tensor:
    """The logits from the k-th largest on, -inf in all other places."""
    logits, top_k = inputs["logits"], int(sizes.get("top_k", 50))
    out = torch.empty_like(logits)
    step = max(1, LOGITS // logits.shape[1])
    for start in range(0, len(logits), step):
        part = logits[start : start + step]
        order = _order(part)
        out[start : start + step] = torch.where(order >= _threshold(order, top_k), part, -torch.inf)
    return out


def _order(x: Tensor) -> Tensor:
    """Numbers from 0 to 2^32 - 1 in the order of the floats, int64; 0 and -0 have the same."""
    bits = (x + 0.0).view(torch.int32).long()  # -0 + 0 is 0
    return torch.where(bits < 0, -1 - (bits - LOWEST), bits) - LOWEST


def _threshold(order: Tensor, top_k: int) -> Tensor:
    """The k-th largest number of each row, [rows, 1]."""
    rows = len(order)
    prefix = torch.zeros(rows, 1, dtype=torch.int64, device=order.device)
    wanted = torch.full_like(prefix, min(top_k, order.shape[1]))
    for shift in (24, 16, 8, 0):
        inside = (order >> (shift + 8)) == prefix
        digit = (order >> shift) & 255
        counts = torch.zeros(rows, 256, dtype=torch.int64, device=order.device)
        counts.scatter_add_(1, digit, inside.long())
        above = counts.flip(1).cumsum(1).flip(1) - counts  # of the same prefix with a larger digit
        # the largest digit that is reached before enough are found: those above it are too few
        chosen = ((above < wanted) & (above + counts >= wanted)).long().argmax(1, keepdim=True)
        wanted = wanted - above.gather(1, chosen)
        prefix = (prefix << 8) | chosen
    return prefix
