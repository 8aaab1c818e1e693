"""Mixture of experts in block-scaled fp8: each token through its chosen gated networks, and their weighted sum."""

import torch
from torch import Tensor, nn
from torch.nn import functional

BLOCK = 128


def scaled(codes: Tensor, scales: Tensor) -> Tensor:
    """The matrix that fp8 codes [n, m] and their scales, one for each block, stand for: float32."""
    rows, columns = scales.shape
    blocks = codes.float().view(rows, -1, columns, BLOCK)
    return (blocks * scales[:, None, :, None]).view(codes.shape)


class Model(nn.Module):
    """out = Σ over the chosen experts e of weight · w2[e] (silu(gate) * up), with gate and up the halves of w1[e] x."""

    def __init__(self, num_experts: int, intermediate_size: int, top_k: int) -> None:
        super().__init__()
        self.num_experts = num_experts
        self.intermediate_size = intermediate_size
        self.top_k = top_k

    def forward(
        self,
        hidden: Tensor,
        w1: Tensor,
        w2: Tensor,
        hidden_scales: Tensor,
        w1_scales: Tensor,
        w2_scales: Tensor,
        topk_weights: Tensor,
        topk_ids: Tensor,
    ) -> Tensor:
        """hidden [T, H], w1 [E, 2 I, H], w2 [E, H, I] fp8; scales float32; weights float32 and ids int32 [T, k].

        hidden_scales [T, H / 128], w1_scales [E, 2 I / 128, H / 128], w2_scales [E, H / 128, I / 128].
        To [T, H] bfloat16; products and sums are float32, and experts are taken one after the other.
        """
        out = torch.zeros(hidden.shape, dtype=torch.float32, device=hidden.device)
        flat = topk_ids.flatten().long()
        counts = torch.bincount(flat, minlength=self.num_experts).tolist()
        for expert, pairs in enumerate(torch.split(flat.argsort(stable=True), counts)):
            if not len(pairs):
                continue
            tokens = pairs // self.top_k
            x = scaled(hidden[tokens], hidden_scales[tokens])
            gate, up = (x @ scaled(w1[expert], w1_scales[expert]).T).chunk(2, dim=-1)
            y = (functional.silu(gate) * up) @ scaled(w2[expert], w2_scales[expert]).T
            out.index_add_(0, tokens, y * topk_weights.flatten()[pairs].unsqueeze(-1))
        return out.bfloat16()
