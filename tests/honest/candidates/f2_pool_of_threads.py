"""F2: a pool made in `__init__`, whose work is awaited before `forward` returns.

Wronged by: a ban on threads."""

from concurrent.futures import ThreadPoolExecutor

import torch
from torch import nn


def rms_norm(x, weight, eps):
    wide = x.float()
    return (wide * torch.rsqrt(wide.square().mean(-1, keepdim=True) + eps) * weight.float()).to(x.dtype)


class Model(nn.Module):
    def __init__(self, eps):
        super().__init__()
        self.eps = eps
        self.pool = ThreadPoolExecutor(2)

    def forward(self, x, weight):
        y = torch.empty_like(x)
        list(self.pool.map(lambda i: y[i::2].copy_(rms_norm(x[i::2], weight, self.eps)), range(2)))
        return y
