"""Causal attention of prompts, chunks of prompts and decodes over keys and values in pages of a cache."""

from collections import defaultdict

import torch
from torch import Tensor, nn
from torch.nn import functional

# At most so many elements of keys, or of a mask, are held at once.
ELEMENTS = 1 << 28


class Model(nn.Module):
    """out = softmax(q kᵀ / sqrt(d)) v per head; a row sees its sequence's tokens up to its own.

    Sequence s has rows cu_seqlens_q[s] to cu_seqlens_q[s + 1] of q: the last of its seqused_k[s] tokens. Token j lies
    in block block_table[s, j // block_size], slot j % block_size. Query head h uses key and value head h // (hq / hk).
    """

    def forward(
        self,
        q: Tensor,
        key_cache: Tensor,
        value_cache: Tensor,
        cu_seqlens_q: Tensor,
        seqused_k: Tensor,
        block_table: Tensor,
    ) -> Tensor:
        """q [rows, hq, d], both caches [blocks, block_size, hk, d], block_table [n, width] to [rows, hq, d]."""
        out = torch.empty_like(q)
        _, hq, d = q.shape
        block_size = key_cache.shape[1]
        alike = defaultdict(list)
        for s, lengths in enumerate(zip(cu_seqlens_q.diff().tolist(), seqused_k.tolist(), strict=True)):
            alike[lengths].append(s)
        for (rows, tokens), members in alike.items():
            if not rows:
                continue
            step = max(1, ELEMENTS // (tokens * hq * d))
            for few in torch.split(torch.tensor(members, device=q.device), step):
                blocks = block_table[few, : -(-tokens // block_size)].long()
                place = cu_seqlens_q[few].unsqueeze(1) + torch.arange(rows, device=q.device)
                k = self.gathered(key_cache, blocks, tokens, hq)
                v = self.gathered(value_cache, blocks, tokens, hq)
                out[place] = self.attend(q[place].transpose(1, 2), k, v).transpose(1, 2)
        return out

    def gathered(self, cache: Tensor, blocks: Tensor, tokens: int, hq: int) -> Tensor:
        """The first `tokens` tokens in each row of blocks, a head for each query head: [sequences, hq, tokens, d]."""
        heads = cache[blocks].flatten(1, 2)[:, :tokens].transpose(1, 2)
        return heads.repeat_interleave(hq // heads.shape[1], dim=1)

    def attend(self, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        """Causal attention of the last tokens' q [sequences, hq, rows, d] over k and v [sequences, hq, tokens, d]."""
        rows, tokens = q.shape[2], k.shape[2]
        if rows == tokens:
            return functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        parts = []
        token = torch.arange(tokens, device=q.device)
        for own in torch.split(token[tokens - rows :], max(1, ELEMENTS // tokens)):
            part = q[:, :, own - (tokens - rows)]
            parts.append(functional.scaled_dot_product_attention(part, k, v, attn_mask=token <= own.unsqueeze(1)))
        return torch.cat(parts, dim=2)
