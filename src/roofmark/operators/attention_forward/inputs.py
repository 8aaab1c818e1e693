"""Inputs of `attention_forward`: each row's softmax rests on some 4 to 64 keys anywhere in its sequence.

Some heads of some rows are special in every call: a query of zero, for which all keys count alike, or a sharp one.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import accumulate, pairwise
from typing import Any

import torch
from torch import Tensor

from roofmark.operators.draw import Draw
from roofmark.records import OutputSpec

# The standard deviation of a sharp query's logits: far outside what exp can hold without the maximum taken off.
SHARP = 46.0
# Sequences of the corner case that has the shape's own number of rows.
RAGGED_FULL = 7
CORNER_LENGTHS: dict[str, list[int]] = {
    "one_row": [1],
    "ragged": [3, 1, 65, 30],
    "empty_sequences": [0, 5, 0, 0, 33, 0],
    "tail": [131],
    "equal_keys": [67],
    "sharp": [70],
    "zeros": [9],
}


def outputs(*, num_heads: int, head_dim: int, seq_lens: Sequence[int]) -> tuple[OutputSpec, ...]:
    return (OutputSpec(name="out", shape=(sum(seq_lens), num_heads, head_dim), dtype="bfloat16"),)


def make_inputs(*, num_heads: int, head_dim: int, seq_lens: Sequence[int], seed: int, device: str) -> dict[str, Tensor]:
    """`q`, `k`, `v` [sum of L, h, d] and `cu_seqlens` [n + 1] int32.

    Logits have a standard deviation that grows with the length: over 65,556 keys that all count alike the
    output would be near the mean of `v` in every row. `v` has a mean of its own in every row and head.
    One in eight of all heads of all rows is special.
    """
    draw = Draw(seed, device)
    kind = draw.kinds("kind", sum(seq_lens) * num_heads, 2).view(-1, num_heads)
    return _make(draw, kind, head_dim, seq_lens)


def _make(draw: Draw, kind: Tensor, head_dim: int, seq_lens: Sequence[int]) -> dict[str, Tensor]:
    """The inputs whose rows and heads are of these kinds."""
    num_heads, device = kind.shape[1], draw.device
    rows = sum(seq_lens)
    shape = (rows, num_heads, head_dim)
    q = draw.uniform("q", shape, torch.bfloat16, 1.5)
    scale = _row_scale(seq_lens, device).view(rows, 1).repeat(1, num_heads)
    scale[kind == 0], scale[kind == 1] = 0.0, SHARP
    q.mul_(scale.unsqueeze(-1))
    k = draw.uniform("k", shape, torch.bfloat16, 2.0)
    v = draw.uniform("v", shape, torch.bfloat16)
    v.add_(draw.between("mean", (rows, num_heads, 1), -1.0, 3.0).to(torch.bfloat16))
    cu_seqlens = torch.tensor([0, *accumulate(seq_lens)], dtype=torch.int32, device=device)
    return {"q": q, "k": k, "v": v, "cu_seqlens": cu_seqlens}


def _row_scale(seq_lens: Sequence[int], device: str) -> Tensor:
    """The standard deviation of the logits, for every row by the length of its sequence."""
    deviations = [math.sqrt(1.4 * math.log(max(1.5, length / 16))) for length in seq_lens]
    counts = torch.tensor(seq_lens, device=device)
    return torch.tensor(deviations, device=device).to(torch.bfloat16).repeat_interleave(counts)


def corners(*, num_heads: int, head_dim: int, seq_lens: Sequence[int]) -> dict[str, dict[str, Any]]:
    """The corner cases, each with its own short sequences; in `ragged_full` the lengths only say the sum."""
    full = {"ragged_full": [sum(seq_lens)] + [0] * (RAGGED_FULL - 1)}
    return {
        name: {"num_heads": num_heads, "head_dim": head_dim, "seq_lens": lengths}
        for name, lengths in (CORNER_LENGTHS | full).items()
    }


def make_corner(
    name: str, *, num_heads: int, head_dim: int, seq_lens: Sequence[int], seed: int, device: str
) -> dict[str, Tensor]:
    if name == "ragged_full":
        seq_lens = _cut(Draw(seed, device), sum(seq_lens), len(seq_lens))
    if name in ("one_row", "ragged", "empty_sequences", "tail", "ragged_full"):
        return make_inputs(num_heads=num_heads, head_dim=head_dim, seq_lens=seq_lens, seed=seed, device=device)
    plain = torch.full((sum(seq_lens), num_heads), -1, device=device)
    made = _make(Draw(seed, device), plain, head_dim, seq_lens)
    if name == "equal_keys":  # every key counts alike: the mean of v
        made["k"][:] = made["k"][:1].clone()
    elif name == "sharp":  # logits far outside what exp can hold without the maximum taken off
        made["q"].mul_(32.0)
    elif name == "zeros":
        made["q"].zero_()
        made["k"].zero_()
        made["v"][::2].zero_()
    return made


def _cut(draw: Draw, rows: int, count: int) -> list[int]:
    """`count` lengths in random order that sum up to `rows`: 0, 1, and the others cut at random places."""
    cuts = (draw.bits("cuts", (count - 3,), torch.int64) % rows).sort().values.tolist()
    lengths = [0, 1, *(end - start for start, end in pairwise([0, *cuts, rows - 1]))]
    return [lengths[place] for place in draw.permutation("order", count).tolist()]
