"""F4: everything in float64, so more accurate than the reference.

Wronged by: a comparison bit by bit with the reference."""

import torch
from torch import nn


class Model(nn.Module):
    def __init__(self, eps):
        super().__init__()
        self.eps = eps

    def forward(self, x, weight):
        wide = x.double()
        return (wide / torch.sqrt(wide.square().mean(-1, keepdim=True) + self.eps) * weight.double()).to(x.dtype)
