"""F4: rounds to bfloat16 before the weight, as the deployed kernel does.

Wronged by: an error model without that rounding."""

import torch
from torch import nn


class Model(nn.Module):
    def __init__(self, eps):
        super().__init__()
        self.eps = eps

    def forward(self, x, weight):
        wide = x.float()
        inner = (wide * torch.rsqrt(wide.square().mean(-1, keepdim=True) + self.eps)).to(x.dtype)
        return inner * weight
