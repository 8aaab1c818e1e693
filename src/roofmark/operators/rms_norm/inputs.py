"""Inputs of `rms_norm`: rows of very different size, uneven inside, so that every part of the sum counts.

Some rows of every call are special: zero, below eps, as large as float32 sums of squares bear, of one element.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from roofmark.operators.draw import Draw
from roofmark.records import OutputSpec

# Kinds of special rows, and what their elements are multiplied by.
SPECIAL = {"zero_rows": 0.0, "below_eps": 2.0**-16, "large": 2.0**52, "one_element": 0.0}
CORNER_TOKENS = {"one_token": 1, "zero_rows": 3, "large": 3, "below_eps": 3, "one_element": 3, "tail": 37}


def outputs(*, token_count: int, hidden_size: int, eps: float) -> tuple[OutputSpec, ...]:
    return (OutputSpec(name="y", shape=(token_count, hidden_size), dtype="bfloat16"),)


def make_inputs(*, token_count: int, hidden_size: int, eps: float, seed: int, device: str) -> dict[str, Tensor]:
    """`x` [T, H] and `weight` [H].

    Even rows have a mean square of 1 to 16 times `eps`, odd ones a root mean square of about 1/6 to 10.
    Inside a row each sixteenth has its own size, rising or falling along the row: a sum over a part of it is
    not the sum over all of it, and no part is too small to count. One row in eight is special.
    """
    draw = Draw(seed, device)
    return _make(draw, draw.kinds("kind", token_count, len(SPECIAL)), hidden_size, eps)


def _make(draw: Draw, kind: Tensor, hidden_size: int, eps: float) -> dict[str, Tensor]:
    """The inputs whose rows are of these kinds."""
    token_count, device = len(kind), draw.device
    segments = math.gcd(hidden_size, 16)
    exponent = draw.between("row", (token_count, 1), -2.0, 4.0)
    exponent[::2].div_(3).add_(1.37 + 0.5 * math.log2(eps))
    slope = draw.uniform("slope", (token_count, 1)).sign() * torch.linspace(-0.4, 0.4, segments, device=device)
    uneven = draw.between("segment", (token_count, segments), -0.25, 0.25)
    factor = torch.tensor([*SPECIAL.values(), 1.0], device=device)[kind]  # -1, for plain rows, is the last
    size = torch.exp2(exponent + slope + uneven) * factor.unsqueeze(-1)
    x = draw.uniform("x", (token_count, hidden_size), torch.bfloat16)
    x.view(token_count, segments, -1).mul_(size.to(torch.bfloat16).unsqueeze(-1))
    lone = (kind == list(SPECIAL).index("one_element")).nonzero().flatten()
    x[lone, draw.bits("column", (len(lone),), torch.int64) % hidden_size] = 3.0
    return {"x": x, "weight": _weight(draw, hidden_size)}


def _weight(draw: Draw, hidden_size: int) -> Tensor:
    """Signed weights of size 1/2 to 2, far from 1 on average."""
    spread = draw.uniform("weight", (hidden_size,))
    return (1.5 * spread + 0.5 * spread.sign()).to(torch.bfloat16)


def corners(*, token_count: int, hidden_size: int, eps: float) -> dict[str, dict[str, Any]]:
    """The corner cases, each at its own small token count."""
    return {
        name: {"token_count": tokens, "hidden_size": hidden_size, "eps": eps} for name, tokens in CORNER_TOKENS.items()
    }


def make_corner(
    name: str, *, token_count: int, hidden_size: int, eps: float, seed: int, device: str
) -> dict[str, Tensor]:
    draw = Draw(seed, device)
    return _make(draw, draw.corner_kinds(name, token_count, list(SPECIAL)), hidden_size, eps)
