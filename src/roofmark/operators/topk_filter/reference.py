"""The largest logits of each row; the others become -inf."""

import torch
from torch import Tensor, nn


class Model(nn.Module):
    """y = logits where they are at least the `top_k`-th largest of their row, else -inf."""

    def __init__(self, top_k: int = 50) -> None:
        super().__init__()
        self.top_k = top_k

    def forward(self, logits: Tensor) -> Tensor:
        """logits [R, V] float32 to [R, V] float32."""
        least = torch.topk(logits, self.top_k, dim=-1).values[:, -1:]
        return logits.masked_fill(logits < least, -torch.inf)
