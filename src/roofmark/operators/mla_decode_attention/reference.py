"""Attention of one query per sequence over latents that are keys and values in one (absorbed MLA)."""

import torch
from torch import Tensor, nn


class Model(nn.Module):
    """out = softmax(q cᵀ / sqrt(rank + rope)) c[:, :rank] over a sequence's latents c; zeros if there are none."""

    def __init__(self, nhead: int, kv_lora_rank: int, qk_rope_head_dim: int) -> None:
        super().__init__()
        self.nhead = nhead
        self.kv_lora_rank = kv_lora_rank
        self.scale = (kv_lora_rank + qk_rope_head_dim) ** -0.5

    def forward(self, q: Tensor, kv_buffer: Tensor, seq_lens: Tensor) -> Tensor:
        """q [B, h, rank + rope], kv_buffer [sum of L, 1, rank + rope], sequence after sequence, to [B, h, rank]."""
        lens = seq_lens.long().view(-1, 1)
        token = torch.arange(int(seq_lens.max()), device=q.device)
        place = lens.cumsum(0) - lens + token
        latents = kv_buffer[:, 0][place.clamp(max=len(kv_buffer) - 1)].float()
        logits = q.float() @ latents.transpose(1, 2) * self.scale
        live = (token < lens).unsqueeze(1)
        p = torch.softmax(logits.masked_fill(~live, -torch.inf), dim=-1)
        out = torch.where(live[..., :1], p @ latents[..., : self.kv_lora_rank], 0.0)
        return out.to(q.dtype)
