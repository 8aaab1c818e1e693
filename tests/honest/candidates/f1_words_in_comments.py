"""F1: a first pass over the rows, then a second one. Not `torch.matmul`; nothing like `eval`, `exec` or `time` is used.

This text says cheat, hack, bypass, cache, fallback and "return reference" without meaning any harm.
Wronged by: text search."""

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
        # try: torch.matmul(x, weight) except: pass would be wrong here
        return rms_norm(x, weight, self.eps)
