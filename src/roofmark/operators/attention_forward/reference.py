"""Full attention inside each of several sequences that lie one after the other."""

from itertools import pairwise

import torch
from torch import Tensor, nn
from torch.nn import functional


class Model(nn.Module):
    """out = softmax(q kᵀ / sqrt(d)) v per head and sequence; every row sees its whole sequence."""

    def forward(self, q: Tensor, k: Tensor, v: Tensor, cu_seqlens: Tensor) -> Tensor:
        """q, k, v [sum of L, h, d] bfloat16; sequence i is rows cu_seqlens[i] to cu_seqlens[i + 1]."""
        out = torch.empty_like(q)
        for start, end in pairwise(cu_seqlens.tolist()):
            if start < end:
                q_, k_, v_ = (x[start:end].transpose(0, 1).unsqueeze(0) for x in (q, k, v))
                attended = functional.scaled_dot_product_attention(q_, k_, v_)
                out[start:end] = attended.squeeze(0).transpose(0, 1)
        return out
