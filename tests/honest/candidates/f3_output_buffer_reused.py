"""F3: outputs lie in buffers that are made once a shape and written anew by every call.

Wronged by: a ban on whatever outlives a call."""

import torch
from torch import nn


def rms_norm(x, weight, eps):
    wide = x.float()
    return (wide * torch.rsqrt(wide.square().mean(-1, keepdim=True) + eps) * weight.float()).to(x.dtype)


class Model(nn.Module):
    def __init__(self, eps):
        super().__init__()
        self.eps = eps
        self.buffers = {}

    def forward(self, x, weight):
        if x.shape not in self.buffers:
            self.buffers[x.shape] = torch.empty_like(x)
        return self.buffers[x.shape].copy_(rms_norm(x, weight, self.eps))
