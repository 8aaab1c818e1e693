"""Inputs of `l2_norm`: rows of very different length, most of it in one element of each sixteenth.

Some rows of every call are special: zero, below eps, as large as sums of squares bear, of one element, even.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from roofmark.operators.draw import Draw
from roofmark.records import OutputSpec

EPS = 1e-6


def outputs(*, num_tokens: int, hidden_size: int) -> tuple[OutputSpec, ...]:
    return (OutputSpec(name="y", shape=(num_tokens, hidden_size), dtype="bfloat16"),)


def make_inputs(*, num_tokens: int, hidden_size: int, seed: int, device: str) -> dict[str, Tensor]:
    """`x` [T, H].

    The squares of even rows sum up to about 1 to 16 times eps, odd rows have a length of about 1/4 to 16. Inside a
    row each sixteenth has its own size, rising or falling along the row, and one element of it outweighs the rest,
    so that outputs reach a fifth and more. One row in eight is special.
    """
    draw = Draw(seed, device)
    return _make(draw, draw.kinds("kind", num_tokens, len(CHANGES)), hidden_size)


def _make(draw: Draw, kind: Tensor, hidden_size: int) -> dict[str, Tensor]:
    """The inputs whose rows are of these kinds."""
    num_tokens = len(kind)
    segments = math.gcd(hidden_size, 16)
    width = hidden_size // segments
    exponent = draw.between("row", (num_tokens, 1), -2.0, 4.0)
    exponent[::2].div_(3).add_(0.67 + 0.5 * math.log2(EPS))
    slope = draw.uniform("slope", (num_tokens, 1)).sign() * torch.linspace(-0.4, 0.4, segments, device=draw.device)
    size = torch.exp2(exponent + slope + draw.between("segment", (num_tokens, segments), -0.25, 0.25))
    x = draw.uniform("x", (num_tokens, hidden_size), torch.bfloat16)
    parts = x.view(num_tokens, segments, width)
    parts.mul_((size * hidden_size**-0.5).to(torch.bfloat16).unsqueeze(-1))  # a third of the squares
    place = draw.bits("place", (num_tokens, segments, 1), torch.int16).long().remainder_(width)
    sign = draw.uniform("sign", (num_tokens, segments)).sign()
    parts.scatter_(-1, place, (size * sign * math.sqrt(0.67 / segments)).to(torch.bfloat16).unsqueeze(-1))
    for number, change in enumerate(CHANGES.values()):
        rows = (kind == number).nonzero().flatten()
        x[rows] = change(x[rows])
    return {"x": x}


def _one_element(x: Tensor) -> Tensor:
    """The last column alone."""
    x = torch.zeros_like(x)
    x[:, -1] = 3.0
    return x


CHANGES: dict[str, Callable[[Tensor], Tensor]] = {
    "zero_rows": torch.zeros_like,
    "below_eps": lambda x: x * 2.0**-16,
    "large": lambda x: x * 2.0**40,
    "one_element": _one_element,
    "even": lambda x: torch.copysign(torch.full_like(x, 0.75), x),
}
CORNER_TOKENS = {"one_token": 1, "tail": 37, **dict.fromkeys(CHANGES, 4)}


def corners(*, num_tokens: int, hidden_size: int) -> dict[str, dict[str, Any]]:
    """The corner cases, each at its own small token count."""
    return {name: {"num_tokens": tokens, "hidden_size": hidden_size} for name, tokens in CORNER_TOKENS.items()}


def make_corner(name: str, *, num_tokens: int, hidden_size: int, seed: int, device: str) -> dict[str, Tensor]:
    draw = Draw(seed, device)
    return _make(draw, draw.corner_kinds(name, num_tokens, list(CHANGES)), hidden_size)
