"""F6: an autotuner that prints what it tries, warnings included.

Wronged by: a judge that reads what is printed."""

import sys
import warnings

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
        print("autotuning: FAIL variant 3, error in variant 4", file=sys.stderr)
        warnings.warn("slow path", stacklevel=1)
        return rms_norm(x, weight, self.eps)
