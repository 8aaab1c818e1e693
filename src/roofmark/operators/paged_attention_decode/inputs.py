"""Inputs of `paged_attention_decode`: permuted pages, huge garbage wherever no token lies."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from roofmark.operators.draw import Draw
from roofmark.records import OutputSpec

TORCH_DTYPES = {"bf16": torch.bfloat16, "fp16": torch.float16}
# Blocks of the cache that no sequence owns.
SPARE_BLOCKS = 16
# What an element that no token owns is multiplied by: finite in fp16, far larger than any token's.
GARBAGE = 4096.0
# Lengths of the corner cases; each stands for a sequence.
CORNER_LENGTHS: dict[str, list[int]] = {
    "one_token": [1],
    "ragged": [64, 1, 17, 33],
    "empty": [0, 47, 0],
    "tail": [43, 43],
    "long": [257],
    "sharp": [40, 23],
    "equal_keys": [31, 64],
}


def outputs(*, num_seqs: int, num_query_heads: int, head_size: int, dtype: str, **_: Any) -> tuple[OutputSpec, ...]:
    name = str(TORCH_DTYPES[dtype]).removeprefix("torch.")
    return (OutputSpec(name="out", shape=(num_seqs, num_query_heads, head_size), dtype=name),)


def make_inputs(*, num_seqs: int, ctx_len: int, seed: int, device: str, **sizes: Any) -> dict[str, Tensor]:
    """`query`, the two caches, `block_tables` and `context_lens`; every sequence has `ctx_len` tokens.

    Logits spread wide enough that the softmax rests on some 4 to 32 keys; `value_cache` has a mean of its own
    for every token and head.
    """
    return _make([ctx_len] * num_seqs, seed=seed, device=device, **sizes)


def _make(
    lengths: Sequence[int],
    *,
    num_query_heads: int,
    num_kv_heads: int,
    head_size: int,
    block_size: int,
    dtype: str,
    seed: int,
    device: str,
) -> dict[str, Tensor]:
    draw = Draw(seed, device)
    kind = TORCH_DTYPES[dtype]
    width = -(-max(lengths) // block_size)
    used = len(lengths) * width
    blocks = used + SPARE_BLOCKS
    block_tables = draw.permutation("blocks", blocks)[:used].view(len(lengths), width)
    context_lens = torch.tensor(lengths, dtype=torch.int32, device=device)

    place = torch.arange(width * block_size, device=device).view(1, width, block_size)
    factor = torch.full((blocks, block_size), GARBAGE, dtype=kind, device=device)
    factor[block_tables] = torch.where(place < context_lens.view(-1, 1, 1), 1.0, GARBAGE).to(kind)

    deviation = math.sqrt(1.4 * math.log(max(1.5, max(lengths) / 16)))
    query = draw.uniform("query", (len(lengths), num_query_heads, head_size), kind, 1.5 * deviation)
    key_cache = draw.uniform("key", (blocks, num_kv_heads, head_size // 8, block_size, 8), kind, 2.0)
    key_cache.mul_(factor.view(blocks, 1, 1, block_size, 1))
    value_cache = draw.uniform("value", (blocks, num_kv_heads, head_size, block_size), kind)
    value_cache.add_(draw.between("mean", (blocks, num_kv_heads, 1, block_size), -1.0, 3.0).to(kind))
    value_cache.mul_(factor.view(blocks, 1, 1, block_size))
    return {
        "query": query,
        "key_cache": key_cache,
        "value_cache": value_cache,
        "block_tables": block_tables.to(torch.int32),
        "context_lens": context_lens,
    }


def corners(**sizes: Any) -> dict[str, dict[str, Any]]:
    """The corner cases: few sequences, of at most `ctx_len` tokens each."""
    return {
        name: {**sizes, "num_seqs": len(lengths), "ctx_len": max(lengths)} for name, lengths in CORNER_LENGTHS.items()
    }


def make_corner(name: str, *, num_seqs: int, ctx_len: int, seed: int, device: str, **sizes: Any) -> dict[str, Tensor]:
    made = _make(CORNER_LENGTHS[name], seed=seed, device=device, **sizes)
    if name == "sharp":  # logits far outside what exp can hold without the maximum taken off
        made["query"].mul_(32.0)
    elif name == "equal_keys":  # every key counts alike: the mean of the values
        made["query"].zero_()
    return made
