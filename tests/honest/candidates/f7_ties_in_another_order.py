"""F7: equal experts come in another order than the reference's.

Wronged by: a comparison element by element where upstream leaves the order open.
"""

import torch
from torch import nn


class Model(nn.Module):
    def __init__(self, top_k):
        super().__init__()
        self.top_k = top_k

    def forward(self, gating):
        p = torch.softmax(gating.float(), dim=-1)
        order = torch.flip(torch.argsort(p, dim=-1, stable=True), (-1,))[:, : self.top_k]
        weights = torch.gather(p, 1, order)
        return weights, order.to(torch.int32)
