"""Queries, keys and values out of packed projections, with bias added and rotary position embedding."""

import torch
from torch import Tensor, nn

BASE = 10000.0


class Model(nn.Module):
    """q, k and v of qkv + bias; every query and key head turned by its token's position, halves paired (neox)."""

    def __init__(self, num_heads: int, num_kv_heads: int, head_dim: int, rope_dim: int) -> None:
        super().__init__()
        self.heads = [num_heads, num_kv_heads, num_kv_heads]
        self.head_dim = head_dim
        self.rope_dim = rope_dim

    def forward(self, qkv: Tensor, positions: Tensor, bias: Tensor | None = None) -> tuple[Tensor, Tensor, Tensor]:
        """qkv [T, (hq + 2 hk) d], positions [T] int32, bias [(hq + 2 hk) d] to q [T, hq, d], k and v [T, hk, d]."""
        x = qkv if bias is None else qkv + bias
        q, k, v = torch.split(x.view(len(x), -1, self.head_dim), self.heads, dim=1)
        frequency = torch.pow(BASE, -torch.arange(0, self.rope_dim, 2, device=qkv.device) / self.rope_dim)
        angle = positions.view(-1, 1, 1) * frequency
        return self.turned(q, angle), self.turned(k, angle), v.contiguous()

    def turned(self, x: Tensor, angle: Tensor) -> Tensor:
        """x [T, h, d] turned by the angles [T, 1, d / 2], in float32."""
        first, second = x.float().chunk(2, dim=-1)
        cos, sin = angle.cos(), angle.sin()
        return torch.cat([first * cos - second * sin, second * cos + first * sin], dim=-1).to(x.dtype)
