"""A linear layer's sigmoid as the gate of another tensor."""

import torch
from torch import Tensor, nn
from torch.nn import functional


class Model(nn.Module):
    """y = sigmoid(x Wᵀ + bias) * m, computed in float32."""

    def forward(self, x: Tensor, weight: Tensor, bias: Tensor, m: Tensor) -> Tensor:
        """x [T, H], weight [O, H], bias [O], m [T, O], bfloat16, to [T, O] bfloat16; m [T, M] to [T, M] if O is 1."""
        z = functional.linear(x.float(), weight.float(), bias.float())
        return (torch.sigmoid(z) * m.float()).to(x.dtype)
