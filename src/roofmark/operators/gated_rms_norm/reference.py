"""RMSNorm of each row, times a weight per column, times SiLU of a gate."""

import torch
from torch import Tensor, nn
from torch.nn import functional


class Model(nn.Module):
    """y = x / sqrt(mean(x²) + eps) * weight * silu(z), computed in float32."""

    def __init__(self, eps: float, norm_before_gate: bool, activation: str) -> None:
        super().__init__()
        if not norm_before_gate or activation != "silu":
            raise ValueError("only a norm before a SiLU gate has shapes")
        self.eps = eps

    def forward(self, x: Tensor, z: Tensor, weight: Tensor) -> Tensor:
        """x, z [R, H] and weight [H], bfloat16, to [R, H] bfloat16."""
        wide = x.float()
        inverse_rms = torch.rsqrt(wide.square().mean(-1, keepdim=True) + self.eps)
        return (wide * inverse_rms * weight.float() * functional.silu(z.float())).to(x.dtype)
