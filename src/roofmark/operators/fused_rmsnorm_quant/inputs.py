"""Inputs of `fused_rmsnorm_quant`: uneven rows of very different size, weights over seven octaves.

Some rows of every call are special: zero, cancelling, between two numbers, of one element, large, below eps.
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


def outputs(*, token_count: int, hidden_size: int) -> tuple[OutputSpec, ...]:
    return (
        OutputSpec(name="q", shape=(token_count, hidden_size), dtype="float8_e4m3fn"),
        OutputSpec(name="scale", shape=(token_count,), dtype="float32"),
        OutputSpec(name="residual", shape=(token_count, hidden_size), dtype="bfloat16"),
    )


def make_inputs(*, token_count: int, hidden_size: int, seed: int, device: str) -> dict[str, Tensor]:
    """`x`, `residual` [T, H] and `weight` [H].

    Even rows of the sum have a mean square of 1 to 16 times eps, odd ones a root mean square of about 1/6 to 10.
    Inside a row each sixteenth has its own size, rising or falling along the row. One row in eight is special.
    """
    draw = Draw(seed, device)
    return _make(draw, draw.kinds("kind", token_count, len(CHANGES)), hidden_size)


def _make(draw: Draw, kind: Tensor, width: int) -> dict[str, Tensor]:
    """The inputs whose rows are of these kinds."""
    tokens = len(kind)
    segments = math.gcd(width, 16)
    exponent = draw.between("row", (tokens, 1), -2.0, 4.0)
    exponent[::2].div_(3).add_(1.12 + 0.5 * math.log2(EPS))
    slope = draw.uniform("slope", (tokens, 1)).sign() * torch.linspace(-0.4, 0.4, segments, device=draw.device)
    uneven = draw.between("segment", (tokens, segments), -0.25, 0.25)
    size = torch.exp2(exponent + slope + uneven).to(torch.bfloat16).unsqueeze(-1)
    share = torch.exp2(draw.between("share", (tokens, 1, 1), -1.0, 1.0)).to(torch.bfloat16)
    x = draw.uniform("x", (tokens, width), torch.bfloat16)
    residual = draw.uniform("residual", (tokens, width), torch.bfloat16)
    x.view(tokens, segments, -1).mul_(size * share.clamp(max=1.0))
    residual.view(tokens, segments, -1).mul_(size * share.reciprocal().clamp(max=1.0))
    weight = draw.uniform("sign", (width,)).sign() * torch.exp2(draw.between("weight", (width,), -6.0, 1.0))
    for number, change in enumerate(CHANGES.values()):
        rows = (kind == number).nonzero().flatten()
        x[rows], residual[rows] = change(x[rows], residual[rows])
    return {"x": x, "residual": residual, "weight": weight.to(torch.bfloat16)}


Change = Callable[[Tensor, Tensor], tuple[Tensor, Tensor]]


def _half_way(x: Tensor, residual: Tensor) -> tuple[Tensor, Tensor]:
    """A sum in the middle of two bfloat16 numbers: x is half a unit in the last place of the residual."""
    exponent = torch.frexp(residual.float()).exponent
    return torch.copysign(torch.exp2(exponent.float() - 9), x.float()).to(torch.bfloat16), residual


def _one_element(x: Tensor, residual: Tensor) -> tuple[Tensor, Tensor]:
    here = torch.zeros_like(x, dtype=torch.bool)
    here[:, -1] = True
    return torch.where(here, x, 0.0), torch.where(here, 3.0, residual * 0)


CHANGES: dict[str, Change] = {
    "zeros": lambda x, residual: (torch.zeros_like(x), torch.zeros_like(residual)),
    "cancel": lambda x, residual: (-residual, residual),
    "half_way": _half_way,
    "one_element": _one_element,
    "large": lambda x, residual: (x * 2.0**40, residual * 2.0**40),
    "below_eps": lambda x, residual: (x * 2.0**-6, residual * 2.0**-6),
}
CORNER_TOKENS = {"one_token": 1, "tail": 37, **dict.fromkeys(CHANGES, 3)}


def corners(*, token_count: int, hidden_size: int) -> dict[str, dict[str, Any]]:
    """The corner cases, each at its own small token count."""
    return {name: {"token_count": tokens, "hidden_size": hidden_size} for name, tokens in CORNER_TOKENS.items()}


def make_corner(name: str, *, token_count: int, hidden_size: int, seed: int, device: str) -> dict[str, Tensor]:
    draw = Draw(seed, device)
    return _make(draw, draw.corner_kinds(name, token_count, list(CHANGES)), hidden_size)
