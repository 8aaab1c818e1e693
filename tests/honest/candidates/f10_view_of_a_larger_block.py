"""F10: the output is a contiguous view of a larger block.

Wronged by: a check of the storage instead of the tensor."""

import torch
from torch import nn


def rms_norm(x, weight, eps):
    wide = x.float()
    return (wide * torch.rsqrt(wide.square().mean(-1, keepdim=True) + eps) * weight.float()).to(x.dtype)


class Model(nn.Module):
    def __init__(self, eps):
        super().__init__()
        self.eps = eps

    def forward(self, x, weight):
        block = torch.empty((x.shape[0] + 2, x.shape[1]), dtype=x.dtype)
        return block[1:-1].copy_(rms_norm(x, weight, self.eps))
