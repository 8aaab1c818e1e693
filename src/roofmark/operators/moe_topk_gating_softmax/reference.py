"""The experts of each token: softmax over all, then the largest few."""

import torch
from torch import Tensor, nn


class Model(nn.Module):
    """The `top_k` largest of softmax(gating) in each row, largest first, and which experts they are."""

    def __init__(self, top_k: int) -> None:
        super().__init__()
        self.top_k = top_k

    def forward(self, gating: Tensor) -> tuple[Tensor, Tensor]:
        """gating [T, E] float32 to weights [T, k] float32 and ids [T, k] int32; equal ones in any order."""
        weights, ids = torch.topk(torch.softmax(gating, dim=-1), self.top_k, dim=-1)
        return weights, ids.to(torch.int32)
