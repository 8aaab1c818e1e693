"""A second `fused_moe`: experts of like load together in one batched product, their shares gathered at the end.

The slots of a piece of tokens are sorted by expert. Experts go by falling load into batches, each padded to its
largest, and what is computed for a slot is put at the slot's own place. So a token's shares lie side by side, and
their weighted sum is a product of its weights with them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import torch
from torch import Tensor

from roofmark.operators import Sizes

# Bytes of float32 that a batch of experts may take, and those of the shares of a piece of tokens.
BATCH, SHARES = 1 << 29, 1 << 28


def second(inputs: Mapping[str, Tensor], sizes: Sizes) -> Tensor:
    hidden, ids, weights = inputs["hidden"], inputs["topk_ids"].long(), inputs["topk_weights"]
    (tokens, width), top_k = hidden.shape, ids.shape[1]
    out = torch.empty_like(hidden)
    step = max(1, SHARES // (4 * width * top_k))
    for start in range(0, tokens, step):
        rows = slice(start, start + step)
        shares = shares_of(hidden[rows].float(), ids[rows], inputs["w1"], inputs["w2"])
        out[rows] = torch.bmm(weights[rows].unsqueeze(1), shares).squeeze(1).to(out.dtype)
    return out


def shares_of(hidden: Tensor, ids: Tensor, w1: Tensor, w2: Tensor) -> Tensor:
    """What each expert of each token says, [T, k, H]."""
    (tokens, top_k), (experts, width, inner) = ids.shape, w2.shape
    slots = torch.argsort(ids.view(-1))
    counts = torch.bincount(ids.view(-1), minlength=experts)
    begins = counts.cumsum(0) - counts
    # one row more, for padding to be written to
    shares = torch.empty((tokens * top_k + 1, width), dtype=torch.float32, device=hidden.device)
    for chosen, most in batches(counts, 3 * inner * width, 2 * width + 3 * inner):
        place = torch.arange(most, device=hidden.device)
        real = place < counts[chosen].unsqueeze(-1)
        slot = slots[torch.where(real, begins[chosen].unsqueeze(-1) + place, 0)]
        gate_up = torch.bmm(hidden[slot // top_k], w1[chosen].float().transpose(1, 2))
        gate, up = gate_up.view(len(chosen), most, 2, inner).unbind(2)
        values = torch.bmm(silu(gate) * up, w2[chosen].float().transpose(1, 2))
        shares[torch.where(real, slot, tokens * top_k)] = values
    return shares[:-1].view(tokens, top_k, width)


def batches(counts: Tensor, of_expert: int, of_row: int) -> Iterator[tuple[Tensor, int]]:
    """Experts by falling load in batches, those without slots left out, and the largest load of each batch.

    `of_expert` and `of_row` are the numbers that an expert and one of its rows need.
    """
    loads, order = counts.sort(descending=True)
    sizes = [load for load in loads.tolist() if load > 0]
    start = 0
    while start < len(sizes):
        most = sizes[start]
        end = start + max(1, BATCH // (4 * (of_expert + most * of_row)))
        # a load below half of the largest is not padded up to it
        while sizes[min(end, len(sizes)) - 1] * 2 < most:
            end = min(end, len(sizes)) - 1
        yield order[start : min(end, len(sizes))], most
        start = min(end, len(sizes))


def silu(gate: Tensor) -> Tensor:
    """gate · sigmoid(gate), with no exponential of a positive number."""
    small = torch.exp(-gate.abs())
    return gate * torch.where(gate >= 0, 1.0, small) / (1 + small)
