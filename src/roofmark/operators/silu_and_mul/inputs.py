"""Inputs of `silu_and_mul`: gates where SiLU bends, factors of order one.

Some rows of every call are special: zeros, gates far below 0, gates so wide that an exponential overflows, products
as large as bfloat16 bears, tiny gates.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from roofmark.operators.draw import Draw
from roofmark.records import OutputSpec

SPECIAL = ("zeros", "far_negative", "wide", "large", "small")
CORNER_TOKENS = {"one_token": 1, "zeros": 3, "large": 3, "far_negative": 3, "small": 3, "tail": 37}


def outputs(*, shape: Sequence[int]) -> tuple[OutputSpec, ...]:
    return (OutputSpec(name="y", shape=(shape[0], shape[1] // 2), dtype="bfloat16"),)


def make_inputs(*, shape: Sequence[int], seed: int, device: str) -> dict[str, Tensor]:
    """`x` [T, 2 I]: gates over -4 to 4, factors over -2 to 2; one row in eight is special."""
    draw = Draw(seed, device)
    return _make(draw, draw.kinds("kind", shape[0], len(SPECIAL)), shape)


def _make(draw: Draw, kind: Tensor, shape: Sequence[int]) -> dict[str, Tensor]:
    """The inputs whose rows are of these kinds."""
    x = draw.uniform("x", shape, torch.bfloat16, 4.0)
    x[:, shape[1] // 2 :].mul_(0.5)
    for number, name in enumerate(SPECIAL):
        places = (kind == number).nonzero().flatten()
        rows = x[places]
        _change(name, *rows.chunk(2, dim=-1))
        x[places] = rows
    return {"x": x}


def _change(name: str, gate: Tensor, up: Tensor) -> None:
    """Makes plain rows special, in place."""
    if name == "zeros":
        half = gate.shape[1] // 2
        gate[:, :half].zero_()
        up[:, half:].zero_()
    elif name == "far_negative":
        gate.abs_().add_(16.0).neg_()
    elif name == "wide":  # up to 128: exp of either sign overflows float32
        gate.mul_(32.0)
    elif name == "large":  # products up to 2**123
        gate.mul_(2.0**60)
        up.mul_(2.0**60)
    elif name == "small":
        gate.mul_(2.0**-20)
        up.mul_(2.0**20)


def corners(*, shape: Sequence[int]) -> dict[str, dict[str, Any]]:
    """The corner cases, each at its own small token count."""
    return {name: {"shape": [tokens, shape[1]]} for name, tokens in CORNER_TOKENS.items()}


def make_corner(name: str, *, shape: Sequence[int], seed: int, device: str) -> dict[str, Tensor]:
    draw = Draw(seed, device)
    return _make(draw, draw.corner_kinds(name, shape[0], SPECIAL), shape)
