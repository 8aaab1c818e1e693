"""F3: a workspace that refers to itself, replaced in every call; only the collector frees it.

Wronged by: a runner that exempts what lives at a call from being collected later."""

import torch
from torch import nn


class Workspace:
    def __init__(self, nbytes):
        self.itself = self
        self.buffer = torch.ones(nbytes, dtype=torch.uint8)


class Model(nn.Module):
    def __init__(self, eps):
        super().__init__()
        self.eps = eps
        self.workspace = None

    def forward(self, x, weight):
        self.workspace = Workspace(64 << 20)
        wide = x.float()
        factor = torch.rsqrt(wide.square().mean(-1, keepdim=True) + self.eps)
        return (wide * factor * weight.float()).to(x.dtype)
