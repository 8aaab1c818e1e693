"""F6: the import takes 1.5 s and starts a process that it waits for.

Wronged by: a limit on imports made for quick ones."""

import subprocess
import sys
import time

import torch
from torch import nn


def rms_norm(x, weight, eps):
    wide = x.float()
    return (wide * torch.rsqrt(wide.square().mean(-1, keepdim=True) + eps) * weight.float()).to(x.dtype)


time.sleep(1.5)
subprocess.run([sys.executable, "-I", "-c", "print('compiled')"], check=True, stdout=subprocess.DEVNULL)


class Model(nn.Module):
    def __init__(self, eps):
        super().__init__()
        self.eps = eps

    def forward(self, x, weight):
        return rms_norm(x, weight, self.eps)
