"""F6: the first call compiles for 1.5 s, the next ones try variants.

Wronged by: a first call that is timed, or given no more time than the others."""

import time

import torch
from torch import nn


def rms_norm(x, weight, eps):
    wide = x.float()
    return (wide * torch.rsqrt(wide.square().mean(-1, keepdim=True) + eps) * weight.float()).to(x.dtype)


def by_division(x, weight, eps):
    wide = x.float()
    return (wide / torch.sqrt(wide.square().mean(-1, keepdim=True) + eps) * weight.float()).to(x.dtype)


variants = (rms_norm, by_division)


class Model(nn.Module):
    def __init__(self, eps):
        super().__init__()
        self.eps = eps
        self.calls = 0

    def forward(self, x, weight):
        self.calls += 1
        if self.calls == 1:
            time.sleep(1.5)
        variant = variants[self.calls % 2] if self.calls < 6 else variants[0]
        return variant(x, weight, self.eps)
