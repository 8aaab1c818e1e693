"""Inputs of `reshape_and_cache`: slots all over a pool that holds values.

The pool is twice as large as the tokens need, or has `num_blocks` blocks.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from roofmark.operators.draw import Draw
from roofmark.records import OutputSpec

BF16 = torch.bfloat16
SMALLEST_POOL = 64
CORNER_TOKENS = {
    "one_token": 1,
    "padded": 37,
    "all_padded": 5,
    "ends": 2,
    "one_block": 16,
    "in_order": 33,
    "zeros": 3,
    "large": 5,
    "tail": 131,
}


def outputs(*, shape: Sequence[int], block_size: int, num_blocks: int | None = None) -> tuple[OutputSpec, ...]:
    tokens, heads, head_size = shape
    blocks = num_blocks or max(-(-2 * tokens // block_size), SMALLEST_POOL)
    names = ("key_cache", "value_cache")
    return tuple(OutputSpec(name=n, shape=(blocks, block_size, heads, head_size), dtype="bfloat16") for n in names)


def make_inputs(
    *, shape: Sequence[int], block_size: int, seed: int, device: str, num_blocks: int | None = None
) -> dict[str, Tensor]:
    """`key`, `value` [T, h, d], `key_cache`, `value_cache` [NB, b, h, d], `slot_mapping` [T] int64.

    The first token's slot is not 0: with a single token, slots that are not looked at would be right there.
    """
    draw = Draw(seed, device)
    pool = outputs(shape=shape, block_size=block_size, num_blocks=num_blocks)[0].shape
    order = draw.permutation("slots", pool[0] * block_size)
    start = int(order[0] == 0)
    return {
        "key": draw.uniform("key", shape, BF16, 2.0),
        "value": draw.uniform("value", shape, BF16, 2.0),
        "key_cache": draw.uniform("key_cache", pool, BF16, 2.0),
        "value_cache": draw.uniform("value_cache", pool, BF16, 2.0),
        "slot_mapping": order[start : start + shape[0]].clone(),
    }


def corners(*, shape: Sequence[int], block_size: int, num_blocks: int | None = None) -> dict[str, dict[str, Any]]:
    """The corner cases, each at its own small token count."""
    return {name: {"shape": [tokens, *shape[1:]], "block_size": block_size} for name, tokens in CORNER_TOKENS.items()}


def make_corner(name: str, *, shape: Sequence[int], block_size: int, seed: int, device: str) -> dict[str, Tensor]:
    made = make_inputs(shape=shape, block_size=block_size, seed=seed, device=device)
    slots = made["slot_mapping"]
    if name == "padded":  # the last ones, as graphs of a fixed size have it, and some in between
        slots[torch.arange(len(slots), device=device) % 5 == 3] = -1
        slots[-4:] = -1
    elif name == "all_padded":
        slots.fill_(-1)
    elif name == "ends":
        slots.copy_(torch.tensor([0, made["key_cache"].flatten(0, 1).shape[0] - 1]))
    elif name == "one_block":  # a block filled from its end
        slots.copy_(5 * block_size + torch.arange(len(slots)).flip(0) % block_size)
    elif name == "in_order":  # the tokens of a sequence, from inside a block on
        slots.copy_(torch.arange(len(slots)) + block_size + 3)
    elif name == "zeros":
        made["key"].zero_()
        made["value_cache"].zero_()
    elif name == "large":
        made["key"].mul_(2.0**120)
        made["value"].mul_(2.0**-120)
    return made
