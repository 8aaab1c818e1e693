"""The slots of all tokens sorted by expert, and how many each expert has."""

import torch
from torch import Tensor, nn


class Model(nn.Module):
    """A stable sort of the slots by expert, a histogram of the experts, and its sums from 0 on."""

    def __init__(self, num_experts: int = 128, block_size: int = 128) -> None:
        super().__init__()
        self.num_experts = num_experts

    def forward(self, topk_ids: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """topk_ids [T, k] int32 to sorted_ids [T k], counts [E] and cumsum [E + 1] int32; slot k t + j has [t, j]."""
        experts = topk_ids.flatten().long()
        sorted_ids = torch.argsort(experts, stable=True)
        counts = torch.bincount(experts, minlength=self.num_experts)
        cumsum = torch.cat([counts.new_zeros(1), counts.cumsum(0)])
        return sorted_ids.int(), counts.int(), cumsum.int()
