"""F10: one output in a tuple, as frameworks often do.

Wronged by: a check of the container instead of what it holds."""

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
        return (rms_norm(x, weight, self.eps),)
