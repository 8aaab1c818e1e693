"""F2: a parallel numba kernel.

Wronged by: a watch on threads that wait."""

import numpy as np
import torch
from numba import njit, prange
from torch import nn


@njit(parallel=True)
def scale(x, weight, eps, y):
    for row in prange(x.shape[0]):
        total = np.float32(0)
        for i in range(x.shape[1]):
            total += x[row, i] * x[row, i]
        factor = np.float32(1) / np.sqrt(total / np.float32(x.shape[1]) + eps)
        for i in range(x.shape[1]):
            y[row, i] = x[row, i] * factor * weight[i]


class Model(nn.Module):
    def __init__(self, eps):
        super().__init__()
        self.eps = eps

    def forward(self, x, weight):
        y = torch.empty(x.shape, dtype=torch.float32)
        scale(x.float().numpy(), weight.float().numpy(), np.float32(self.eps), y.numpy())
        return y.to(x.dtype)
