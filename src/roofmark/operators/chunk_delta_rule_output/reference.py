"""What queries read in chunked gated linear attention: the state before the chunk, and the tokens inside it."""

import torch
from torch import Tensor, nn
from torch.nn import functional


class Model(nn.Module):
    """out = scale (e^g q h + tril(q kᵀ e^(g_t - g_s)) v) per head and chunk, in float32, rounded to bfloat16."""

    def __init__(self, chunk_size: int) -> None:
        super().__init__()
        self.chunk_size = chunk_size

    def forward(self, q: Tensor, k: Tensor, v: Tensor, h: Tensor, g: Tensor) -> Tensor:
        """q, k [B, T, hq, dk], v [B, T, hv, dv], h [B, N, hv, dk, dv] bfloat16, g [B, T, hv] float32; out as v."""
        tokens, heads = v.shape[1:3]
        group = heads // q.shape[2]
        wide_q, wide_k = (self.chunked(x.repeat_interleave(group, 2)) for x in (q, k))
        decay = self.chunked(g.unsqueeze(-1))
        causal = torch.ones(self.chunk_size, self.chunk_size, dtype=torch.bool, device=g.device).tril()
        between = (decay - decay.mT).masked_fill(~causal, -torch.inf).exp()
        inside = (wide_q @ wide_k.mT * between) @ self.chunked(v)
        total: Tensor = (wide_q @ h.float() * decay.exp() + inside) * q.shape[3] ** -0.5
        return total.transpose(2, 3).flatten(1, 2)[:, :tokens].to(v.dtype).contiguous()

    def chunked(self, x: Tensor) -> Tensor:
        """[B, T, heads, d] in chunks, zeros after the last token: [B, N, heads, chunk, d] float32."""
        padded = functional.pad(x.float(), (0, 0, 0, 0, 0, -x.shape[1] % self.chunk_size))
        return padded.view(len(x), -1, self.chunk_size, *x.shape[2:]).transpose(2, 3)
