"""Mixture of experts: each token through its chosen gated networks, and their weighted sum."""

import torch
from torch import Tensor, nn
from torch.nn import functional


class Model(nn.Module):
    """out = Σ over the chosen experts e of weight · w2[e] (silu(gate) * up), with gate and up the halves of w1[e] x."""

    def __init__(self, num_experts: int, intermediate_size: int, top_k: int) -> None:
        super().__init__()
        self.num_experts = num_experts
        self.intermediate_size = intermediate_size
        self.top_k = top_k

    def forward(self, hidden: Tensor, w1: Tensor, w2: Tensor, topk_weights: Tensor, topk_ids: Tensor) -> Tensor:
        """hidden [T, H], w1 [E, 2 I, H], w2 [E, H, I] bfloat16, weights float32 and ids int32 [T, k]; to [T, H].

        Products and sums are float32; experts are taken one after the other.
        """
        out = torch.zeros(hidden.shape, dtype=torch.float32, device=hidden.device)
        flat = topk_ids.flatten().long()
        counts = torch.bincount(flat, minlength=self.num_experts).tolist()
        for expert, pairs in enumerate(torch.split(flat.argsort(stable=True), counts)):
            if not len(pairs):
                continue
            tokens = pairs // self.top_k
            gate, up = (hidden[tokens].float() @ w1[expert].float().T).chunk(2, dim=-1)
            y = (functional.silu(gate) * up) @ w2[expert].float().T
            out.index_add_(0, tokens, y * topk_weights.flatten()[pairs].unsqueeze(-1))
        return out.to(hidden.dtype)
