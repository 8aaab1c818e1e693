"""Activations as fp8 codes, each row and group of columns with a scale that brings its largest to the largest code."""

import torch
from torch import Tensor, nn

EPS = 1e-10


def fp8_type(device: torch.device) -> torch.dtype:
    """The fp8 e4m3 type of the device's matrix units: `fnuz` on gfx94x, `fn` elsewhere."""
    amd = device.type == "cuda" and torch.version.hip
    if amd and torch.cuda.get_device_properties(device).gcnArchName.startswith("gfx94"):
        return torch.float8_e4m3fnuz
    return torch.float8_e4m3fn


class Model(nn.Module):
    """scale = max(max |x|, eps) / fp8_max over a group, q = x / scale rounded to the nearest code."""

    def __init__(self, group_size: int) -> None:
        super().__init__()
        self.group_size = group_size

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """x [T, H] bfloat16 to q [T, H] fp8 e4m3 and scale [T, H / group_size] float32."""
        dtype = fp8_type(x.device)
        largest = torch.finfo(dtype).max
        groups = x.view(len(x), -1, self.group_size)
        scale = groups.abs().amax(-1).float().clamp(min=EPS) / largest
        q = groups.float().div_(scale.unsqueeze(-1)).clamp_(-largest, largest).to(dtype)
        return q.view(x.shape), scale
