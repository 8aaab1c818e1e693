"""F3: a workspace and a table made once in `__init__` and used by every call.

Wronged by: a ban on whatever outlives a call."""

import torch
from torch import nn


class Model(nn.Module):
    def __init__(self, eps):
        super().__init__()
        self.eps = eps
        self.workspace = torch.empty(1 << 22)

    def forward(self, x, weight):
        rows, columns = x.shape
        wide = self.workspace[: rows * columns].view(rows, columns)
        wide.copy_(x)
        factor = torch.rsqrt(wide.square().mean(-1, keepdim=True) + self.eps)
        return wide.mul_(factor).mul_(weight.float()).to(x.dtype)
