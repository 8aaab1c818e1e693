"""F5: divides where the reference multiplies by the reciprocal.

Wronged by: a comparison bit by bit with the reference."""

import torch
from torch import nn


class Model(nn.Module):
    def __init__(self, eps):
        super().__init__()
        self.eps = eps

    def forward(self, x, weight):
        wide = x.float()
        return (wide / torch.sqrt(wide.square().mean(-1, keepdim=True) + self.eps) * weight.float()).to(x.dtype)
