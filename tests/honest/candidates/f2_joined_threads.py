"""F2: several threads that are joined before `forward` returns.

Wronged by: a ban on threads."""

import threading

import torch
from torch import nn


def rms_norm(x, weight, eps):
    wide = x.float()
    return (wide * torch.rsqrt(wide.square().mean(-1, keepdim=True) + eps) * weight.float()).to(x.dtype)


class Model(nn.Module):
    def __init__(self, eps):
        super().__init__()
        self.eps = eps

    def part(self, y, x, weight):
        y.copy_(rms_norm(x, weight, self.eps))

    def forward(self, x, weight):
        y = torch.empty_like(x)
        parts = [threading.Thread(target=self.part, args=(y[i::3], x[i::3], weight)) for i in range(3)]
        for part in parts:
            part.start()
        for part in parts:
            part.join()
        return y
