"""A second `fp8_blockscale_fused_moe`: products of bare codes for each block of 128, which are scaled and then added.

Nothing is dequantised before a product: a batch of products of codes, one for each block that is summed over, gives
partial sums, and a partial sum is multiplied by the scale of its token and that of its block of the weights. Tokens
come to an expert in one run of a sorted list.
"""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

from roofmark.operators import Sizes

BLOCK = 128
# Numbers of partial sums that are held at a time: 256 MB of float32.
PIECE = 1 << 26


def second(inputs: Mapping[str, Tensor], sizes: Sizes) -> Tensor:
    hidden, ids = inputs["hidden"], inputs["topk_ids"].view(-1)
    (tokens, width), top_k, inner = hidden.shape, inputs["topk_ids"].shape[1], inputs["w2"].shape[2]
    out = torch.zeros((tokens, width), dtype=torch.float32, device=hidden.device)
    step = max(1, PIECE // (2 * inner * width // BLOCK))
    slots = torch.argsort(ids)
    runs = torch.split(slots, torch.bincount(ids, minlength=len(inputs["w1"])).tolist())
    for expert, run in enumerate(runs):
        if not len(run):
            continue
        w1, w2 = blocks_of(inputs["w1"][expert].float()), blocks_of(inputs["w2"][expert].float())
        for slot in torch.split(run, step):
            token = slot // top_k
            x = blocks_of(hidden[token].float())
            sums = scaled_sum(x, inputs["hidden_scales"][token], w1, inputs["w1_scales"][expert])
            values = silu(sums[:, :inner]).mul_(sums[:, inner:])
            share = scaled_sum(blocks_of(values), None, w2, inputs["w2_scales"][expert])
            share *= inputs["topk_weights"].view(-1)[slot].unsqueeze(-1)
            out.index_add_(0, token, share)
    return out.to(torch.bfloat16)


def blocks_of(matrix: Tensor) -> Tensor:
    """[R, C] as [C / 128, R, 128]."""
    return matrix.view(len(matrix), -1, BLOCK).transpose(0, 1)


def scaled_sum(x: Tensor, x_scales: Tensor | None, w: Tensor, w_scales: Tensor) -> Tensor:
    """x · wᵀ [n, R] of blocks [B, n, 128] and [B, R, 128] with scales [n, B] and [R / 128, B]."""
    partial = torch.bmm(x, w.transpose(1, 2)).view(len(x), x.shape[1], -1, BLOCK)
    partial *= w_scales.T[:, None, :, None]
    if x_scales is not None:
        partial *= x_scales.T[:, :, None, None]
    return partial.sum(0).view(x.shape[1], -1)


def silu(gate: Tensor) -> Tensor:
    """gate · sigmoid(gate), with no exponential of a positive number."""
    small = torch.exp(-gate.abs())
    return gate * torch.where(gate >= 0, 1.0, small) / (1 + small)
