"""Attention of one query per sequence over keys and values that lie in pages of a cache."""

import torch
from torch import Tensor, nn


class Model(nn.Module):
    """out = softmax(q kᵀ / sqrt(d)) v over a sequence's first `context_lens` tokens; zeros if there are none.

    Query head h uses key and value head h // (hq / hk). Token t of sequence n lies in block
    block_tables[n, t // 16], slot t % 16.
    """

    def forward(
        self,
        query: Tensor,
        key_cache: Tensor,
        value_cache: Tensor,
        block_tables: Tensor,
        context_lens: Tensor,
    ) -> Tensor:
        """query [n, hq, d], key_cache [NB, hk, d/8, 16, 8], value_cache [NB, hk, d, 16] to [n, hq, d]."""
        n, hq, d = query.shape
        hk = key_cache.shape[1]
        blocks = block_tables.long()
        k = key_cache[blocks].permute(0, 2, 1, 4, 3, 5).reshape(n, hk, -1, d).float()
        v = value_cache[blocks].permute(0, 2, 1, 4, 3).reshape(n, hk, -1, d).float()
        logits = query.float().view(n, hk, hq // hk, d) @ k.transpose(-1, -2) * d**-0.5
        beyond = torch.arange(k.shape[2], device=query.device) >= context_lens.view(n, 1, 1, 1)
        p = torch.softmax(logits.masked_fill(beyond, -torch.inf), dim=-1)
        out = torch.where(context_lens.view(n, 1, 1, 1) > 0, p @ v, 0.0)
        return out.view(n, hq, d).to(query.dtype)
