"""Which experts a token goes to, with which weights: the draws of all that handles experts, and pairs by expert."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor

from roofmark.operators.draw import Draw
from roofmark.operators.experts import touched

# The most popular expert is drawn some e to this power as often as the least.
POPULARITY = 3.0
# A token's largest weight is up to e to twice this power its smallest.
WEIGHTS = 1.5


def choose(draw: Draw, tokens: int, experts: int, top_k: int, used: int) -> Tensor:
    """Ids [tokens, top_k] int32, none twice in a row, that touch exactly `used` experts, unevenly.

    `used` lies between `top_k` and `tokens` · `top_k`.
    """
    # the experts of the least keys are chosen: exponential times, shorter for popular experts
    popular = torch.exp(draw.between("popular", (used,), 0.0, POPULARITY))
    keys = draw.uniform("routing", (tokens, used)).abs_().log_().neg_().div_(popular)
    # each used expert has a token that must go to it
    expert = torch.arange(used, device=keys.device)
    keys[draw.permutation("token", tokens)[expert % tokens], expert] = -1.0
    chosen = keys.topk(top_k, dim=-1, largest=False, sorted=False).indices
    order = draw.bits("order", (tokens, top_k), torch.int64).argsort(dim=-1)
    return draw.permutation("experts", experts)[chosen.gather(1, order)].to(torch.int32)


def with_idle(draw: Draw, tokens: int, experts: int, top_k: int) -> Tensor:
    """Ids as `choose` draws them, where one expert in sixteen is idle, and more where tokens are few."""
    used = min(touched(tokens, experts, top_k), max(experts - experts // 16, top_k))
    return choose(draw, tokens, experts, top_k, used)


def weigh(draw: Draw, tokens: int, top_k: int) -> Tensor:
    """Weights [tokens, top_k] float32, uneven; their sum over a token is off from 1 by 1/10 to 3/10."""
    weights = torch.exp(draw.between("weights", (tokens, top_k), -WEIGHTS, WEIGHTS))
    weights.div_(weights.sum(-1, keepdim=True))
    off = draw.uniform("sum", (tokens, 1))
    return weights.mul_(1 + 0.1 * off.sign() + 0.2 * off)


def by_expert(ids: Tensor) -> Iterator[tuple[int, Tensor, Tensor]]:
    """Each expert in `ids` [rows, k] with the rows that go to it and the places of its id in them."""
    flat = ids.flatten().long()
    order = torch.argsort(flat, stable=True)
    for expert, pairs in enumerate(torch.split(order, torch.bincount(flat).tolist())):
        if len(pairs):
            yield expert, pairs // ids.shape[1], pairs % ids.shape[1]


def corner(name: str, draw: Draw, tokens: int, experts: int, top_k: int) -> Tensor:
    """Ids of a corner case: `few_experts` are all tokens' alike, one expert is every token's where it is `crowded`."""
    if name == "few_experts":
        return choose(draw, tokens, experts, top_k, top_k)
    ids = choose(draw, tokens, experts, top_k, touched(tokens, experts, top_k))
    if name == "crowded":
        popular = ids.flatten()[-1]
        here = (ids == popular).any(-1)
        ids[~here, 0] = popular
    return ids
