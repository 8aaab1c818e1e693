"""Inputs of `paged_attention_decode`: permuted pages, huge garbage wherever no token lies.

Some heads of some sequences are special in every call: a query of zero, for which all keys count alike, or a sharp one.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from roofmark.operators.draw import Draw
from roofmark.operators.spans import Contexts, contexts
from roofmark.records import OutputSpec

TORCH_DTYPES = {"bf16": torch.bfloat16, "fp16": torch.float16}
# Blocks of the cache that no sequence owns.
SPARE_BLOCKS = 16
# What an element that no token owns is multiplied by: finite in fp16, far larger than any token's.
GARBAGE = 4096.0
# The standard deviation of a sharp query's logits: far outside what exp can hold without the maximum taken off.
SHARP = 46.0
# Lengths of the small corner cases; each stands for a sequence.
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


def make_inputs(*, num_seqs: int, ctx_len: Contexts, seed: int, device: str, **sizes: Any) -> dict[str, Tensor]:
    """`query`, the two caches, `block_tables` and `context_lens`; every sequence has the tokens that `ctx_len` says.

    Logits spread wide enough that the softmax rests on some 4 to 32 keys; `value_cache` has a mean of its own
    for every token and head. One in eight of all heads of all sequences is special.
    """
    draw = Draw(seed, device)
    lengths = contexts(num_seqs, ctx_len)
    return _make(draw, lengths, max(lengths), _kinds(draw, num_seqs, sizes["num_query_heads"]), **sizes)


def _kinds(draw: Draw, num_seqs: int, num_query_heads: int) -> Tensor:
    """Which queries are zero (0) and which are sharp (1), [n, hq]."""
    return draw.kinds("kind", num_seqs * num_query_heads, 2).view(num_seqs, num_query_heads)


def _make(
    draw: Draw,
    lengths: Sequence[int],
    most: int,
    query_kinds: Tensor,
    *,
    num_query_heads: int,
    num_kv_heads: int,
    head_size: int,
    block_size: int,
    dtype: str,
) -> dict[str, Tensor]:
    """The inputs for sequences of these lengths; `most` is the length that the table has room for."""
    device = draw.device
    kind = TORCH_DTYPES[dtype]
    width = -(-most // block_size)
    used = len(lengths) * width
    blocks = used + SPARE_BLOCKS
    block_tables = draw.permutation("blocks", blocks)[:used].view(len(lengths), width)
    context_lens = torch.tensor(lengths, dtype=torch.int32, device=device)

    place = torch.arange(width * block_size, device=device).view(1, width, block_size)
    factor = torch.full((blocks, block_size), GARBAGE, dtype=kind, device=device)
    factor[block_tables] = torch.where(place < context_lens.view(-1, 1, 1), 1.0, GARBAGE).to(kind)

    deviation = math.sqrt(1.4 * math.log(max(1.5, most / 16)))
    query = draw.uniform("query", (len(lengths), num_query_heads, head_size), kind, 1.5)
    scale = torch.tensor([0.0, SHARP, deviation], dtype=kind, device=device)[query_kinds]  # -1 is the last
    query.mul_(scale.unsqueeze(-1))
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
    """The corner cases: few sequences of their own lengths; `ragged_full` has the shape's own sizes."""
    small = {
        name: {**sizes, "num_seqs": len(lengths), "ctx_len": max(lengths)} for name, lengths in CORNER_LENGTHS.items()
    }
    return {**small, "ragged_full": dict(sizes)}


def make_corner(
    name: str, *, num_seqs: int, ctx_len: Contexts, seed: int, device: str, **sizes: Any
) -> dict[str, Tensor]:
    draw = Draw(seed, device)
    most = max(contexts(num_seqs, ctx_len))
    lengths = CORNER_LENGTHS.get(name) or _ragged(draw, num_seqs, most, sizes["block_size"])
    kinds = _kinds(draw, num_seqs, sizes["num_query_heads"])
    if name == "sharp":
        kinds.fill_(1)
    elif name == "equal_keys":  # every key counts alike: the mean of the values
        kinds.fill_(0)
    return _make(draw, lengths, most, kinds, **sizes)


def _ragged(draw: Draw, num_seqs: int, ctx_len: int, block_size: int) -> list[int]:
    """Random lengths up to `ctx_len`: some 0, some 1 where there are 3 sequences or more, some inside a block."""
    lengths = draw.bits("lengths", (num_seqs,), torch.int64) % ctx_len + 1
    order = draw.permutation("order", num_seqs)
    inside = order[::16]
    lengths[inside] -= (lengths[inside] % block_size == 0).long()
    lengths[order[1::16][: num_seqs // 3]] = 0
    lengths[order[2::16]] = 1
    return [int(length) for length in lengths.tolist()]
