"""The judge's side of `reshape_and_cache`: any chosen blocks of both caches, exactly."""

from __future__ import annotations

import random
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from roofmark.operators.draw import chunks, near
from roofmark.operators.expected import Expected


def neighbours(rng: random.Random, **sizes: Any) -> tuple[dict[str, Any], dict[str, Any]]:
    tokens, *rest = sizes["shape"]
    first, second = near(rng, tokens)
    return {**sizes, "shape": [first, *rest]}, {**sizes, "shape": [second, *rest]}


def expected_rows(inputs: Mapping[str, Tensor], sizes: Mapping[str, Any], index: Tensor) -> dict[str, Expected]:
    """`key_cache` and `value_cache` of the blocks `index`: the row of the token that goes to a slot, else as before."""
    slots = inputs["slot_mapping"]
    kept = (slots >= 0).nonzero().flatten()
    blocks, block_size, heads, head_size = inputs["key_cache"].shape
    token = torch.full((blocks * block_size,), -1, device=slots.device)
    token[slots[kept]] = kept
    token = token.view(blocks, block_size)[index]
    expected = {}
    for name in ("key", "value"):
        cache = inputs[f"{name}_cache"]
        value = torch.empty((len(index), block_size, heads, head_size), dtype=torch.float64, device=cache.device)
        for part in chunks(len(index), 24 * block_size * heads * head_size):
            moved = token[part] >= 0
            value[part] = cache[index[part]].double()
            value[part][moved] = inputs[name][token[part][moved]].double()
        expected[f"{name}_cache"] = Expected(value, None)
    return expected
