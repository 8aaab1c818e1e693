"""RMSNorm: each row divided by its root mean square, times a weight per column."""

import torch
from torch import Tensor, nn


class Model(nn.Module):
    """y = x / sqrt(mean(x²) + eps) * weight, computed in float32."""

    def __init__(self, eps: float) -> None:
        super().__init__()
        self.eps = eps

    def forward(self, x: Tensor, weight: Tensor) -> Tensor:
        """x [T, H] and weight [H], bfloat16, to [T, H] bfloat16."""
        wide = x.float()
        inverse_rms = torch.rsqrt(wide.square().mean(-1, keepdim=True) + self.eps)
        return (wide * inverse_rms * weight.float()).to(x.dtype)
