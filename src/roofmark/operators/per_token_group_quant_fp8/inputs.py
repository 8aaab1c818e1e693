"""Inputs of `per_token_group_quant_fp8`: groups of very different size, with codes of every octave in each.

Some groups of every call are special: see `roofmark.operators.fp8_rows`.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from roofmark.operators.draw import Draw, chunks
from roofmark.operators.fp8_rows import CHANGES, CORNER_TOKENS, change
from roofmark.records import OutputSpec

# Bytes drawn at a time; other streams follow from another figure.
PIECE = 1 << 28


def outputs(*, token_count: int, hidden_size: int, group_size: int) -> tuple[OutputSpec, ...]:
    return (
        OutputSpec(name="q", shape=(token_count, hidden_size), dtype="float8_e4m3fn"),
        OutputSpec(name="scale", shape=(token_count, hidden_size // group_size), dtype="float32"),
    )


def make_inputs(*, token_count: int, hidden_size: int, group_size: int, seed: int, device: str) -> dict[str, Tensor]:
    """`x` [T, H]: cubes of even spread, which fill the octaves of fp8.

    The sizes of groups spread over ten octaves. One group in eight is special.
    """
    x = torch.empty((token_count, hidden_size), dtype=torch.bfloat16, device=device)
    draw = Draw(seed, device)
    for part in chunks(token_count, 2 * hidden_size, budget=PIECE):
        kind = draw.kinds(f"kind/{part.start}", len(x[part]) * hidden_size // group_size, len(CHANGES))
        x[part] = _make(draw, f"/{part.start}", kind, group_size).view(-1, hidden_size)
    return {"x": x}


def _make(draw: Draw, piece: str, kind: Tensor, width: int) -> Tensor:
    """Groups [G, width] of these kinds, from the streams of one piece."""
    x = draw.uniform(f"x{piece}", (len(kind), width), torch.bfloat16)
    square = x * x
    square[:, -1] = 1.0  # small values alone in the last column would not show whether it was written
    x[::4, -1] = torch.copysign(square[::4, -1], x[::4, -1])  # nor whether a maximum looks at the last of a group
    size = torch.exp2(draw.between(f"size{piece}", (len(kind), 1), -5.0, 5.0)).to(torch.bfloat16)
    x.mul_(square).mul_(size)
    change(x, kind)
    return x


def corners(*, token_count: int, hidden_size: int, group_size: int) -> dict[str, dict[str, Any]]:
    """The corner cases, each at its own small token count."""
    fixed = {"hidden_size": hidden_size, "group_size": group_size}
    return {name: {"token_count": tokens, **fixed} for name, tokens in CORNER_TOKENS.items()}


def make_corner(
    name: str, *, token_count: int, hidden_size: int, group_size: int, seed: int, device: str
) -> dict[str, Tensor]:
    draw = Draw(seed, device)
    kind = draw.corner_kinds(name, token_count * hidden_size // group_size, list(CHANGES))
    return {"x": _make(draw, "", kind, group_size).view(token_count, hidden_size)}
