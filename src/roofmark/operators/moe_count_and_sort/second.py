"""A second `moe_count_and_sort`: a radix sort bit by bit, sums by search in what is sorted.

Each pass parts the slots by one bit of their experts, from the lowest, and keeps the order inside both parts. Where
an expert's slots begin is then looked up, and counts are the distances between the beginnings.
"""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

from roofmark.operators import Sizes


def second(inputs: Mapping[str, Tensor], sizes: Sizes) -> tuple[Tensor, Tensor, Tensor]:
    experts = sizes["num_experts"]
    ids = inputs["topk_ids"].reshape(-1)
    slots = torch.arange(len(ids), dtype=torch.int32, device=ids.device)
    for bit in range((experts - 1).bit_length()):
        one = (ids >> bit) & 1
        ones = one.cumsum(0)
        zeros = torch.arange(1, len(ids) + 1, device=ids.device) - ones
        to = torch.where(one == 1, zeros[-1] + ones, zeros) - 1
        ids = torch.empty_like(ids).scatter_(0, to, ids)
        slots = torch.empty_like(slots).scatter_(0, to, slots)
    every = torch.arange(experts + 1, dtype=ids.dtype, device=ids.device)
    begins = torch.searchsorted(ids, every, out_int32=True)
    return slots, begins.diff(), begins
