"""Rotary embedding of queries and keys whose frequencies follow one of three positions, by sections."""

import torch
from torch import Tensor, nn


class Model(nn.Module):
    """Every query and key head turned, halves paired (neox); frequency i uses the position of its section."""

    def __init__(
        self, head_size: int, rotary_dim: int, mrope_section: list[int], mrope_interleaved: bool, is_neox_style: bool
    ) -> None:
        super().__init__()
        if rotary_dim != head_size or mrope_interleaved or not is_neox_style:
            raise ValueError("whole heads, sections one after the other and neox pairs alone")
        self.head_size = head_size
        self.mrope_section = list(mrope_section)

    def forward(self, q: Tensor, k: Tensor, cos: Tensor, sin: Tensor) -> tuple[Tensor, Tensor]:
        """q [T, hq d], k [T, hk d] bfloat16, cos and sin [3, T, d / 2] float32, to q and k turned."""
        cos, sin = self.sections(cos), self.sections(sin)
        return self.turned(q, cos, sin), self.turned(k, cos, sin)

    def sections(self, table: Tensor) -> Tensor:
        """[3, T, d / 2] to [T, 1, d / 2]: section j out of table[j]."""
        parts = torch.split(table, self.mrope_section, dim=-1)
        return torch.cat([part[j] for j, part in enumerate(parts)], dim=-1).unsqueeze(1)

    def turned(self, x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        """x [T, h d] turned, computed in float32."""
        first, second = x.float().view(len(x), -1, self.head_size).chunk(2, dim=-1)
        out = torch.cat([first * cos - second * sin, second * cos + first * sin], dim=-1)
        return out.to(x.dtype).flatten(1)
