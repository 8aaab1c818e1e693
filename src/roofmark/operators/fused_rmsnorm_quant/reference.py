"""The residual added, RMSNorm, and the result as fp8 codes with a scale for each row."""

import torch
from torch import Tensor, nn


def fp8_type(device: torch.device) -> torch.dtype:
    """The fp8 e4m3 type of the device's matrix units: `fnuz` on gfx94x, `fn` elsewhere."""
    amd = device.type == "cuda" and torch.version.hip
    if amd and torch.cuda.get_device_properties(device).gcnArchName.startswith("gfx94"):
        return torch.float8_e4m3fnuz
    return torch.float8_e4m3fn


class Model(nn.Module):
    """r = x + residual, y = r / sqrt(mean(r²) + eps) * weight, scale = max |y| / fp8_max, q = y / scale."""

    def __init__(self, eps: float = 1e-6) -> None:
        super().__init__()
        self.eps = eps

    def forward(self, x: Tensor, residual: Tensor, weight: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """x, residual [T, H] and weight [H], bfloat16, to q [T, H] fp8 e4m3, scale [T] float32 and r [T, H] bfloat16.

        A row of zeros gives zeros.
        """
        dtype = fp8_type(x.device)
        largest = torch.finfo(dtype).max
        added = (x.float() + residual.float()).to(x.dtype)
        wide = added.float()
        y = wide * torch.rsqrt(wide.square().mean(-1, keepdim=True) + self.eps) * weight.float()
        scale = y.abs().amax(-1) / largest
        divisor = torch.where(scale > 0, scale, 1.0).unsqueeze(-1)
        return (y / divisor).clamp(-largest, largest).to(dtype), scale, added
