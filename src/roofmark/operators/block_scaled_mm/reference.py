"""Product of two fp8 matrices with a scale per block of each, as in block-quantised linear layers."""

import torch
from torch import Tensor, nn


class Model(nn.Module):
    """out = A Bᵀ in float32 with A, B the scaled matrices, rounded to bfloat16.

    `a` has a scale for each row and `group_k` columns, `b` one for each `group_n` rows and `group_k` columns.
    """

    def __init__(self, group_n: int, group_k: int) -> None:
        super().__init__()
        self.group_n = group_n
        self.group_k = group_k

    def forward(self, a: Tensor, b: Tensor, a_scales: Tensor, b_scales: Tensor) -> Tensor:
        """a [m, k], b [n, k] fp8; a_scales [m, k / 128], b_scales [n / 128, k / 128]; to [m, n] bfloat16."""
        (m, k), n = a.shape, b.shape[0]
        left = a.float().view(m, -1, self.group_k).mul_(a_scales.view(m, -1, 1))
        right = b.float().view(n // self.group_n, self.group_n, -1, self.group_k)
        right.mul_(b_scales[:, None, :, None])
        return torch.mm(left.view(m, k), right.view(n, k).T).bfloat16()
