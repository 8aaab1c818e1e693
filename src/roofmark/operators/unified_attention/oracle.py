"""The judge's side of `unified_attention`: float64 values of chosen rows, and a right kernel's error."""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping
from itertools import cycle, islice
from typing import Any

import torch
from torch import Tensor

from roofmark.operators.draw import chunks, near
from roofmark.operators.expected import Expected
from roofmark.operators.spans import spans

# Half a unit in the last place of bfloat16, relative.
ROUNDING = torch.finfo(torch.bfloat16).eps / 2
# float32 logits, exponentials and sums, relative to the sum of p |v|: far below the roundings.
FLOAT32 = 2.0**-13
# Probabilities below float32's normal numbers may be flushed: nothing where the output is of order one.
UNDERFLOW = 2.0**-100
# Rows of one sequence that share a copy of its keys and values.
TILE = 64
BUDGET = 1 << 26
RUNS = 48

Span = tuple[int, int]


def neighbours(rng: random.Random, **sizes: Any) -> tuple[dict[str, Any], dict[str, Any]]:
    """Two batches of prompts, chunks of prompts and decodes: mostly prompts, then mostly the others.

    Both have about as many sequences and tokens as the shape, none of their lengths is a multiple of 2.
    """
    every = spans(sizes["seq_lens"])
    longest = max(tokens for _, tokens in every)
    if len(every) == 1:
        pair = _around_one(rng, longest)
    else:
        pair = (_mix(rng, len(every), longest, "pcdppcpp"), _mix(rng, len(every), longest, "dcpddcdd"))
    return _sizes(sizes, pair[0]), _sizes(sizes, pair[1])


def _sizes(sizes: Mapping[str, Any], runs: list[tuple[int, int, int]]) -> dict[str, Any]:
    count = sum(run[2] for run in runs)
    return {**sizes, "num_seqs": count, "seq_lens": {"run_length": [list(run) for run in runs]}}


def _mix(rng: random.Random, count: int, longest: int, kinds: str) -> list[tuple[int, int, int]]:
    """Runs of prompts (p), chunks (c) and decodes (d) of lengths around `longest`, in random order."""
    count = near(rng, count)[0]
    runs = min(count, RUNS)
    made = []
    for number, kind in enumerate(islice(cycle(kinds), runs)):
        tokens = _odd(rng, longest * 7 // 8, longest * 17 // 16)
        rows = tokens
        if kind == "c":
            rows = _odd(rng, tokens // 4, tokens * 3 // 4)
        elif kind == "d":
            rows, tokens = 1, _odd(rng, longest // 8, longest * 3 // 2)
        made.append((rows, tokens, (count + number) // runs))
    rng.shuffle(made)
    return made


def _around_one(rng: random.Random, length: int) -> tuple[list[tuple[int, int, int]], list[tuple[int, int, int]]]:
    """One prompt of about `length`, or one chunk of it, with a few short sequences before and behind."""
    prompt = _odd(rng, length * 7 // 8, length - 1)
    chunk = _odd(rng, 3, length // 16)
    first = [(prompt, prompt, 1), (max(1, chunk // 2), chunk, 1), *((1, _odd(rng, 1, length // 32), 1) for _ in "ab")]
    whole = _odd(rng, length + 1, length * 17 // 16)
    decodes = [(1, _odd(rng, length // 4, length // 2), 1), (1, _odd(rng, 1, length // 8), 1)]
    prompt = _odd(rng, 3, length // 32)
    second = [(_odd(rng, whole // 4, whole // 3), whole, 1), (prompt, prompt, 1), *decodes]
    rng.shuffle(first)
    rng.shuffle(second)
    return first, second


def _odd(rng: random.Random, low: int, high: int) -> int:
    """An odd number from about `low` to `high`."""
    return rng.randrange(low | 1, max(low | 1, high) + 1, 2)


def expected_rows(inputs: Mapping[str, Tensor], sizes: Mapping[str, Any], index: Tensor) -> dict[str, Expected]:
    """`out` of the rows `index`; work and memory grow with the rows asked for times the tokens that they see.

    Bound: the probabilities, relative to the largest, may be rounded to bfloat16 before the product with the values,
    as deployed kernels do, or not; then the output is rounded. Both products add up in float32.
    """
    q, bounds = inputs["q"], inputs["cu_seqlens_q"].long()
    sequence = torch.searchsorted(bounds, index.contiguous(), right=True) - 1
    seen = inputs["seqused_k"][sequence] - bounds[sequence + 1] + index + 1
    value = torch.empty((len(index), *q.shape[1:]), dtype=torch.float64, device=q.device)
    spread = torch.empty_like(value)
    for tiles, width in _tiles(sequence, seen):
        _attend(inputs, index, sequence, seen, tiles, width, (value, spread))
    bound = spread.mul_(ROUNDING + FLOAT32).add_(value.abs(), alpha=ROUNDING).add_(UNDERFLOW)
    return {"out": Expected(value, bound)}


def _tiles(sequence: Tensor, seen: Tensor) -> Iterator[tuple[Tensor, int]]:
    """Batches of tiles, [tiles, rows] places in `index` with -1 for none, and the most tokens that a row sees.

    A tile's rows are of one sequence. Tiles of a batch have about as many rows and tokens, within a factor of two.
    """
    order = torch.argsort(sequence * (1 << 31) + seen)
    rank = torch.arange(len(order), device=order.device)
    rank -= torch.searchsorted(sequence[order], sequence[order])
    tile = (rank % TILE == 0).cumsum(0) - 1
    tiles = torch.full((int(tile[-1]) + 1, TILE), -1, device=order.device)
    tiles[tile, rank % TILE] = order
    rows = (tiles >= 0).sum(1)
    width = torch.where(tiles >= 0, seen[tiles], 0).amax(1)
    kind = rows.log2().ceil() * 64 + width.log2().ceil()
    for one in sorted(set(kind.tolist())):
        few = (kind == one).nonzero().flatten()
        yield tiles[few, : int(rows[few].max())], int(width[few].max())


def _attend(
    inputs: Mapping[str, Tensor],
    index: Tensor,
    sequence: Tensor,
    seen: Tensor,
    tiles: Tensor,
    width: int,
    sums: tuple[Tensor, Tensor],
) -> None:
    """Fill `sums`, of p v and of p |v|, at the rows of `tiles`, some tiles and heads at a time."""
    block_size, num_kv_heads, head_dim = inputs["key_cache"].shape[1:]
    group = inputs["q"].shape[1] // num_kv_heads
    per_head = 8 * width * (3 * tiles.shape[1] * group + 3 * head_dim)
    places = torch.arange(width, device=index.device)
    for some in chunks(len(tiles), per_head * num_kv_heads, budget=BUDGET):
        few = tiles[some]
        real = few >= 0
        rows = index[few]
        blocks = inputs["block_table"][sequence[few[:, 0]], : -(-width // block_size)].long()
        beyond = (places >= seen[few].unsqueeze(-1))[:, None, :, None]
        for heads in chunks(num_kv_heads, per_head * len(few), budget=BUDGET):
            k, v = (
                inputs[name][:, :, heads][blocks].double().flatten(1, 2)[:, :width].transpose(1, 2)
                for name in ("key_cache", "value_cache")
            )
            queries = slice(heads.start * group, heads.stop * group)
            shape = (*rows.shape, k.shape[1], group, head_dim)
            q = inputs["q"][:, queries][rows].double().view(shape).transpose(1, 2)
            logits = (q.flatten(2, 3) @ k.transpose(-1, -2)).view(*q.shape[:4], width).mul_(head_dim**-0.5)
            p = logits.masked_fill_(beyond, -torch.inf).softmax(-1).flatten(2, 3)
            for total, values in zip(sums, (v, v.abs()), strict=True):
                made = (p @ values).view(q.shape).transpose(1, 2).flatten(2, 3)
                total[few[real], queries] = made[real]
