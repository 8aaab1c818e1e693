"""Inputs of `moe_align_block_size`: distinct experts for each token, some much liked, some idle."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from roofmark.operators import routing
from roofmark.operators.draw import Draw
from roofmark.records import OutputSpec

CORNER_TOKENS = {
    "one_token": 1,
    "full_blocks": 128,
    "one_over": 129,
    "first_experts": 5,
    "last_experts": 5,
    "in_order": 33,
    "repeated": 9,
    "tail": 131,
}
SAME_EXPERTS = ("full_blocks", "one_over", "first_experts", "last_experts")


def outputs(*, token_count: int, top_k: int, num_experts: int, block_size: int) -> tuple[OutputSpec, ...]:
    slots = token_count * top_k
    places = slots + num_experts * (block_size - 1)
    if slots < num_experts:
        places = min(places, slots * block_size)
    sizes = {"sorted_ids": places, "expert_ids": -(-places // block_size), "num_tokens_post_pad": 1}
    return tuple(OutputSpec(name=name, shape=(size,), dtype="int32") for name, size in sizes.items())


def make_inputs(
    *, token_count: int, top_k: int, num_experts: int, block_size: int, seed: int, device: str
) -> dict[str, Tensor]:
    """`topk_ids` [T, k] int32; the first token has the last expert, so that the last block's is never 0."""
    ids = routing.with_idle(Draw(seed, device), token_count, num_experts, top_k)
    ids[0, ids[0].argmax()] = num_experts - 1
    return {"topk_ids": ids}


def corners(*, token_count: int, **fixed: Any) -> dict[str, dict[str, Any]]:
    """The corner cases, each at its own small token count."""
    return {name: {"token_count": tokens, **fixed} for name, tokens in CORNER_TOKENS.items()}


def make_corner(name: str, *, seed: int, device: str, **sizes: Any) -> dict[str, Tensor]:
    made = make_inputs(**sizes, seed=seed, device=device)
    ids = made["topk_ids"]
    tokens, top_k = ids.shape
    if name in SAME_EXPERTS:  # each token chooses the same, in an order of its own
        order = Draw(seed, device).bits("order", (tokens, top_k), torch.int64).argsort(dim=-1)
        chosen = ids[0].clone()
        if name.endswith("experts"):
            chosen = torch.arange(top_k, device=device, dtype=ids.dtype)
        ids.copy_(sizes["num_experts"] - 1 - chosen[order] if name == "last_experts" else chosen[order])
    elif name == "in_order":  # every expert in turn
        ids.copy_((torch.arange(ids.numel(), device=device) % sizes["num_experts"]).view(ids.shape))
    elif name == "repeated":  # all of a token's slots at one expert
        ids.copy_(ids[:, :1].clone())
    return made
