"""RMSNorm of every query head and every key head of packed projections; the value heads stay."""

import torch
from torch import Tensor, nn

EPS = 1e-6


class Model(nn.Module):
    """out = x / sqrt(mean(x²) + eps) * weight inside each query and key head, computed in float32."""

    def __init__(self, head_num: int, kv_head_num: int, size_per_head: int) -> None:
        super().__init__()
        self.widths = [head_num * size_per_head, kv_head_num * size_per_head, kv_head_num * size_per_head]
        self.size_per_head = size_per_head

    def forward(self, qkv: Tensor, q_weight: Tensor, k_weight: Tensor) -> Tensor:
        """qkv [T, (hq + 2 hk) d], q_weight and k_weight [d], float16, to [T, (hq + 2 hk) d] float16."""
        q, k, v = torch.split(qkv, self.widths, dim=-1)
        return torch.cat([self.norm(q, q_weight), self.norm(k, k_weight), v], dim=-1)

    def norm(self, x: Tensor, weight: Tensor) -> Tensor:
        """The heads of `x` [T, h d], each over its root mean square, times the weight."""
        wide = torch.unflatten(x.float(), -1, (-1, self.size_per_head))
        inverse_rms = torch.rsqrt(wide.square().mean(-1, keepdim=True) + EPS)
        return (wide * inverse_rms * weight.float()).to(x.dtype).flatten(1)
