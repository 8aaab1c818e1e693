"""A second `moe_topk_gating_softmax`: the k-th largest bit by bit, the softmax tile by tile.

A logit's bits, turned so that they rise with it, and its place make a whole number that no other expert of the row
has. The k-th largest of these is found from its highest bit down, by counts; those not below it are the chosen ones,
and each one's rank is how many of them are larger. The normaliser is summed over tiles under a running maximum.
"""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

from roofmark.operators import Sizes

TILE = 32


def second(inputs: Mapping[str, Tensor], sizes: Sizes) -> tuple[Tensor, Tensor]:
    gating, top_k = inputs["gating"], sizes["top_k"]
    tokens, experts = gating.shape
    place_bits = (experts - 1).bit_length()
    keys = keys_of(gating, place_bits)
    threshold = kth_largest(keys, top_k, 32 + place_bits)
    # exactly k of each row, for no two keys are equal
    chosen = (keys >= threshold).nonzero()[:, 1].view(tokens, top_k)
    chosen_keys = keys.gather(1, chosen)
    rank = (chosen_keys.unsqueeze(1) > chosen_keys.unsqueeze(2)).sum(-1)
    ids = torch.empty_like(chosen).scatter_(1, rank, chosen)
    most, total = normaliser(gating)
    weights = torch.exp(gating.gather(1, ids) - most) / total
    return weights, ids.to(torch.int32)


def keys_of(gating: Tensor, place_bits: int) -> Tensor:
    """int64 [T, E] in the order of the logits, of equal ones the first place largest; none negative."""
    bits = gating.contiguous().view(torch.int32).long()
    rising = torch.where(bits < 0, ~bits & 0xFFFFFFFF, bits | 0x80000000)
    place = torch.arange(gating.shape[1], device=gating.device)
    return (rising << place_bits) + ((1 << place_bits) - 1 - place)


def kth_largest(keys: Tensor, k: int, bits: int) -> Tensor:
    """[T, 1]: the largest number that at least k keys of the row reach."""
    found = torch.zeros_like(keys[:, :1])
    for bit in reversed(range(bits)):
        tried = found | (1 << bit)
        found = torch.where((keys >= tried).sum(-1, keepdim=True) >= k, tried, found)
    return found


def normaliser(gating: Tensor) -> tuple[Tensor, Tensor]:
    """[T, 1] each: the largest logit and the sum of exponentials below it."""
    most = torch.full_like(gating[:, :1], -torch.inf)
    total = torch.zeros_like(most)
    for tile in torch.split(gating, TILE, dim=1):
        new = torch.maximum(most, tile.amax(-1, keepdim=True))
        base = torch.where(new == -torch.inf, 0.0, new)  # a tile of masked experts adds nothing
        total = total * torch.exp(most - base) + torch.exp(tile - base).sum(-1, keepdim=True)
        most = new
    return most, total
