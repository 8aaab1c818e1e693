"""Inputs of `topk_filter`: rows whose largest lie all over them, closer together than bfloat16 tells apart.

Some rows of every call are special: with ties, all equal, the largest side by side, masked, with fewer than are kept.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from roofmark.operators.draw import Draw
from roofmark.records import OutputSpec

LARGEST = 64  # places, one in each 64th of a row


def outputs(*, seq_len: int, hidden_size: int, top_k: int = 50) -> tuple[OutputSpec, ...]:
    return (OutputSpec(name="y", shape=(seq_len, hidden_size), dtype="float32"),)


def make_inputs(*, seq_len: int, hidden_size: int, top_k: int = 50, seed: int, device: str) -> dict[str, Tensor]:
    """`logits` [R, V], each row with a scale and an offset of its own.

    In even rows the 64 largest lie one in each 64th of the row, those in the first and the last 16 columns above
    all others, which are 2**-17 to 2**-12 of the scale apart. In odd rows two fifths of them are missing, so that
    the last ones kept are of the common sort. One row in eight is special.
    """
    draw = Draw(seed, device)
    return _make(draw, draw.kinds("kind", seq_len, len(SPECIAL)), hidden_size, top_k)


def _make(draw: Draw, kind: Tensor, hidden_size: int, top_k: int) -> dict[str, Tensor]:
    """The inputs whose rows are of these kinds."""
    seq_len = len(kind)
    scale = torch.exp2(draw.between("scale", (seq_len, 1), -2.0, 3.0))
    side = draw.uniform("offset", (seq_len, 1))
    offset = (8 * side + 8 * side.sign()) * scale
    logits = draw.uniform("logits", (seq_len, hidden_size), scale=4.0).mul_(scale).add_(offset)
    width = hidden_size // LARGEST
    place = draw.bits("place", (seq_len, LARGEST), torch.int32).long().remainder_(width)
    place += torch.arange(LARGEST, device=draw.device) * width
    place[:, 0].remainder_(16)
    place[:, -1].remainder_(16).neg_().add_(hidden_size - 1)
    level = draw.bits("level", (seq_len, LARGEST), torch.int64).argsort(dim=-1)
    value = 4.5 + level * torch.exp2(draw.between("gap", (seq_len, 1), -17.0, -12.0))
    value[:, 0] += 1.0
    value[:, -1] += 1.5
    value = value.mul_(scale).add_(offset)
    missing = level < LARGEST * 2 // 5
    missing[::2] = False
    missing[:, 0] = missing[:, -1] = False
    logits.scatter_(1, place, torch.where(missing, logits.gather(1, place), value))
    for number, change in enumerate(CHANGES.values()):
        rows = (kind == number).nonzero().flatten()
        if len(rows):
            logits[rows] = change(logits[rows], draw, top_k)
    return {"logits": logits}


def _ties(x: Tensor, draw: Draw, top_k: int) -> Tensor:
    """Some dozens of different values."""
    step = x.abs().amax(-1, keepdim=True) / 64
    return (x / step).round() * step


def _clustered(x: Tensor, draw: Draw, top_k: int) -> Tensor:
    """The 64 largest side by side."""
    start = draw.bits("start", (len(x), 1), torch.int32).long().remainder_(x.shape[1] - LARGEST)
    place = start + torch.arange(LARGEST, device=x.device)
    return x.scatter_add(1, place, (2 * x.abs().amax(-1, keepdim=True)).expand(-1, LARGEST))


def _masked(x: Tensor, draw: Draw, top_k: int) -> Tensor:
    """Four of five are -inf."""
    return x.masked_fill(draw.uniform("masked", x.shape) < 0.6, -torch.inf)


def _few(x: Tensor, draw: Draw, top_k: int) -> Tensor:
    """Seven fewer than are kept, the others -inf."""
    order = draw.bits("few", x.shape, torch.int32).argsort(dim=-1)
    return x.scatter(1, order[:, top_k - 7 :], -torch.inf)


def _signed_zeros(x: Tensor, draw: Draw, top_k: int) -> Tensor:
    """Half as many above zero as are kept, all others 0 or -0."""
    zeros = draw.uniform("zeros", x.shape).mul_(0)
    zeros[:, : top_k // 2] = x[:, : top_k // 2].abs()
    return zeros


CHANGES: dict[str, Callable[[Tensor, Draw, int], Tensor]] = {
    "ties": _ties,
    "equal": lambda x, draw, top_k: x[:, :1].expand_as(x),
    "clustered": _clustered,
    "masked": _masked,
    "few": _few,
    "signed_zeros": _signed_zeros,
    "rising": lambda x, draw, top_k: x.sort(dim=-1).values,
    "falling": lambda x, draw, top_k: x.sort(dim=-1, descending=True).values,
    "all_masked": lambda x, draw, top_k: torch.full_like(x, -torch.inf),
    "large": lambda x, draw, top_k: x * 1e30,
    "small": lambda x, draw, top_k: x * 1e-30,
}
SPECIAL = tuple(CHANGES)[:5]
CORNER_ROWS = {"one_row": 1, "tail": 5, **dict.fromkeys(CHANGES, 3)}


def corners(*, seq_len: int, hidden_size: int, **rest: Any) -> dict[str, dict[str, Any]]:
    """The corner cases, each with few rows."""
    return {name: {"seq_len": rows, "hidden_size": hidden_size, **rest} for name, rows in CORNER_ROWS.items()}


def make_corner(
    name: str, *, seq_len: int, hidden_size: int, top_k: int = 50, seed: int, device: str
) -> dict[str, Tensor]:
    draw = Draw(seed, device)
    return _make(draw, draw.corner_kinds(name, seq_len, list(CHANGES)), hidden_size, top_k)
