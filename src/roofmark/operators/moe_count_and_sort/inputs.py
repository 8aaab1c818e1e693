"""Inputs of `moe_count_and_sort`: distinct experts for each token, some much liked, some idle."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from roofmark.operators import routing
from roofmark.operators.draw import Draw
from roofmark.records import OutputSpec

CORNER_TOKENS = {
    "one_token": 1,
    "same_experts": 37,
    "first_experts": 5,
    "last_experts": 5,
    "in_order": 33,
    "repeated": 9,
    "tail": 131,
}


def outputs(*, token_count: int, top_k: int, num_experts: int, block_size: int = 128) -> tuple[OutputSpec, ...]:
    sizes = {"sorted_ids": token_count * top_k, "counts": num_experts, "cumsum": num_experts + 1}
    return tuple(OutputSpec(name=name, shape=(size,), dtype="int32") for name, size in sizes.items())


def make_inputs(
    *, token_count: int, top_k: int, num_experts: int, block_size: int = 128, seed: int, device: str
) -> dict[str, Tensor]:
    """`topk_ids` [T, k] int32.

    The first token has the last expert, not in its first slot, and its experts do not rise along its slots. With
    a single token the slots could else be in order already, and the last of them, or the last count, 0, as in
    memory that was never written.
    """
    ids = routing.with_idle(Draw(seed, device), token_count, num_experts, top_k)
    first = ids[0].tolist()
    first[first.index(max(first))] = num_experts - 1
    if first[0] == num_experts - 1 or first == sorted(first):
        first[:2] = reversed(first[:2])
    ids[0] = torch.tensor(first)
    return {"topk_ids": ids}


def corners(*, token_count: int, **fixed: Any) -> dict[str, dict[str, Any]]:
    """The corner cases, each at its own small token count."""
    return {name: {"token_count": tokens, **fixed} for name, tokens in CORNER_TOKENS.items()}


def make_corner(name: str, *, seed: int, device: str, **sizes: Any) -> dict[str, Tensor]:
    made = make_inputs(**sizes, seed=seed, device=device)
    ids = made["topk_ids"]
    tokens, top_k = ids.shape
    if name == "same_experts":  # each token chooses the same, in an order of its own
        order = Draw(seed, device).bits("order", (tokens, top_k), torch.int64).argsort(dim=-1)
        ids.copy_(ids[0][order])
    elif name in ("first_experts", "last_experts"):
        order = Draw(seed, device).bits("order", (tokens, top_k), torch.int64).argsort(dim=-1)
        ids.copy_(order if name == "first_experts" else sizes["num_experts"] - 1 - order)
    elif name == "in_order":  # every expert in turn
        ids.copy_((torch.arange(ids.numel(), device=device) % sizes["num_experts"]).view(ids.shape))
    elif name == "repeated":  # all of a token's slots at one expert
        ids.copy_(ids[:, :1].clone())
    return made
