"""Inputs of `fp8_dynamic_per_token_quant`: rows of very different size, with codes of every octave in each.

Some rows of every call are special: see `roofmark.operators.fp8_rows`.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from roofmark.operators.draw import Draw
from roofmark.operators.fp8_rows import CHANGES, CORNER_TOKENS, change
from roofmark.records import OutputSpec


def outputs(*, token_count: int, hidden_size: int) -> tuple[OutputSpec, ...]:
    return (
        OutputSpec(name="q", shape=(token_count, hidden_size), dtype="float8_e4m3fn"),
        OutputSpec(name="scale", shape=(token_count,), dtype="float32"),
    )


def make_inputs(*, token_count: int, hidden_size: int, seed: int, device: str) -> dict[str, Tensor]:
    """`x` [T, H]: cubes of even spread, which fill the octaves of fp8, and in each row one larger than all others.

    The sizes of rows spread over ten octaves. One row in eight is special.
    """
    draw = Draw(seed, device)
    return {"x": _make(draw, draw.kinds("kind", token_count, len(CHANGES)), hidden_size)}


def _make(draw: Draw, kind: Tensor, width: int) -> Tensor:
    tokens = len(kind)
    x = draw.uniform("x", (tokens, width), torch.bfloat16)
    square = x * x
    square[:, -1] = 1.0  # small values alone in the last column would not show whether it was written
    row = torch.exp2(draw.between("row", (tokens,), -5.0, 5.0)).to(torch.bfloat16)
    x.mul_(square).mul_(row.unsqueeze(-1))
    place = draw.bits("place", (tokens,), torch.int32).long().remainder_(width)
    top = draw.uniform("top", (tokens,))
    x[torch.arange(tokens, device=x.device), place] = (top.sign() * 1.25 + 0.75 * top).to(torch.bfloat16) * row
    change(x, kind)
    return x


def corners(*, token_count: int, hidden_size: int) -> dict[str, dict[str, Any]]:
    """The corner cases, each at its own small token count."""
    return {name: {"token_count": tokens, "hidden_size": hidden_size} for name, tokens in CORNER_TOKENS.items()}


def make_corner(name: str, *, token_count: int, hidden_size: int, seed: int, device: str) -> dict[str, Tensor]:
    draw = Draw(seed, device)
    return {"x": _make(draw, draw.corner_kinds(name, token_count, list(CHANGES)), hidden_size)}
