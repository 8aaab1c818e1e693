"""The sum of two tensors, and its RMSNorm."""

import torch
from torch import Tensor, nn


class Model(nn.Module):
    """r = x + residual; out = r / sqrt(mean(r²) + eps) * weight, computed in float32."""

    def __init__(self, eps: float) -> None:
        super().__init__()
        self.eps = eps

    def forward(self, x: Tensor, residual: Tensor, weight: Tensor) -> tuple[Tensor, Tensor]:
        """x, residual [T, H] and weight [H], bfloat16, to out and the new residual, [T, H] bfloat16."""
        total = x + residual
        wide = total.float()
        inverse_rms = torch.rsqrt(wide.square().mean(-1, keepdim=True) + self.eps)
        return (wide * inverse_rms * weight.float()).to(x.dtype), total
