"""F2: PyTorch's own pool of threads does the work.

Wronged by: a watch on threads that wait."""

import torch
from torch import nn


class Model(nn.Module):
    def __init__(self, eps):
        super().__init__()
        self.eps = eps

    def forward(self, x, weight):
        torch.set_num_threads(2)
        wide = x.float()
        square = torch.mm(wide, wide.t()).diagonal().unsqueeze(-1) / x.shape[-1]
        return (wide * torch.rsqrt(square + self.eps) * weight.float()).to(x.dtype)
