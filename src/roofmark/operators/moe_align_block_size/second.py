"""A second `moe_align_block_size`: places by a scan over the slots, one counter for each expert.

The counter of its expert, before a slot, is its place in the expert's group; the group begins after the whole blocks
of the experts before it. Blocks look up which expert's they are among the ends of the groups.
"""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

from roofmark.operators import Sizes

# Slots that are scanned at a time.
PIECE = 1 << 16


def second(inputs: Mapping[str, Tensor], sizes: Sizes) -> tuple[Tensor, Tensor, Tensor]:
    experts, block = sizes["num_experts"], sizes["block_size"]
    ids = inputs["topk_ids"].reshape(-1).long()
    slots = ids.numel()
    ranks, counts = ranked(ids, experts)
    blocks = (counts + block - 1) // block
    ends = blocks.cumsum(0)
    starts = (ends - blocks) * block
    places = slots + experts * (block - 1)
    if slots < experts:
        places = min(places, slots * block)

    sorted_ids = torch.full((places,), slots, dtype=torch.int32, device=ids.device)
    sorted_ids[starts[ids] + ranks] = torch.arange(slots, dtype=torch.int32, device=ids.device)
    numbers = torch.arange(-(-places // block), device=ids.device)
    expert_ids = torch.searchsorted(ends, numbers, right=True)
    expert_ids = torch.where(numbers < ends[-1], expert_ids, 0)
    return sorted_ids, expert_ids.to(torch.int32), (ends[-1:] * block).to(torch.int32)


def ranked(ids: Tensor, experts: int) -> tuple[Tensor, Tensor]:
    """How many slots before each have the same expert, and how many each expert has in all."""
    ranks = torch.empty_like(ids)
    counts = torch.zeros(experts, dtype=torch.int64, device=ids.device)
    every = torch.arange(experts, device=ids.device)
    for start in range(0, len(ids), PIECE):
        part = ids[start : start + PIECE]
        upto = (part.unsqueeze(-1) == every).cumsum(0, dtype=torch.int32)
        ranks[start : start + PIECE] = counts[part] + upto.gather(1, part.unsqueeze(-1)).squeeze(-1) - 1
        counts += upto[-1]
    return ranks, counts
