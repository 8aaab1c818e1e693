"""The slots of all tokens grouped by expert, each group padded to whole blocks."""

import torch
from torch import Tensor, nn


class Model(nn.Module):
    """Slots by expert with padding up to whole blocks, the expert of each block, and how many slots that makes."""

    def __init__(self, block_size: int, num_experts: int) -> None:
        super().__init__()
        self.block_size = block_size
        self.num_experts = num_experts

    def forward(self, topk_ids: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """topk_ids [T, k] int32 to sorted_ids [N], expert_ids [N / b rounded up], num_tokens_post_pad [1] int32."""
        experts = topk_ids.flatten().long()
        slots, size = len(experts), len(experts) + self.num_experts * (self.block_size - 1)
        if slots < self.num_experts:
            size = min(size, slots * self.block_size)
        counts = torch.bincount(experts, minlength=self.num_experts)
        blocks = (counts + self.block_size - 1) // self.block_size
        order = torch.argsort(experts, stable=True)
        padding_before = (blocks.cumsum(0) - blocks) * self.block_size - (counts.cumsum(0) - counts)
        place = torch.arange(slots, device=experts.device) + padding_before[experts[order]]
        sorted_ids = torch.full((size,), slots, dtype=torch.int32, device=experts.device)
        sorted_ids[place] = order.int()
        expert_ids = sorted_ids.new_zeros(-(-size // self.block_size))
        owners = torch.arange(self.num_experts, device=experts.device).repeat_interleave(blocks)
        expert_ids[: len(owners)] = owners.int()
        return sorted_ids, expert_ids, (blocks.sum() * self.block_size).int().view(1)
