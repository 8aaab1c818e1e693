"""Inputs of `layer_norm`: rows of very different size and mean, both uneven inside a row.

Some rows of every call are special: constant, nearly constant, below eps, of one element, huge.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from roofmark.operators.draw import Draw
from roofmark.records import OutputSpec

EPS = 1e-5


def outputs(*, shape: Sequence[int]) -> tuple[OutputSpec, ...]:
    return (OutputSpec(name="y", shape=tuple(shape), dtype="bfloat16"),)


def make_inputs(*, shape: Sequence[int], seed: int, device: str) -> dict[str, Tensor]:
    """`x` [.., H], `weight` and `bias` [H].

    Even rows have a variance of 1 to 16 times eps, odd ones a standard deviation of about 1/6 to 10. Means are up
    to three standard deviations from zero, on either side. Inside a row each sixteenth has its own mean and size,
    rising or falling along the row. One row in eight is special.
    """
    draw = Draw(seed, device)
    return _make(draw, draw.kinds("kind", math.prod(shape[:-1]), len(SPECIAL)), shape)


def _make(draw: Draw, kind: Tensor, shape: Sequence[int]) -> dict[str, Tensor]:
    """The inputs whose rows are of these kinds."""
    rows, hidden_size = len(kind), shape[-1]
    segments = math.gcd(hidden_size, 16)
    exponent = draw.between("row", (rows, 1), -2.0, 4.0)
    exponent[::2].div_(3).add_(1.27 + 0.5 * math.log2(EPS))
    slope = draw.uniform("slope", (rows, 1)).sign() * torch.linspace(-0.4, 0.4, segments, device=draw.device)
    size = torch.exp2(exponent + slope + draw.between("segment", (rows, segments), -0.25, 0.25))
    middle = draw.uniform("middle", (rows, 1))
    means = 1.5 * middle + 0.5 * middle.sign() + slope + draw.uniform("means", (rows, segments), scale=0.25)
    means.mul_(torch.exp2(exponent))
    x = draw.uniform("x", (rows, hidden_size), torch.bfloat16)
    parts = x.view(rows, segments, -1)
    parts.mul_(size.to(torch.bfloat16).unsqueeze(-1)).add_(means.to(torch.bfloat16).unsqueeze(-1))
    for number, change in enumerate(CHANGES.values()):
        these = (kind == number).nonzero().flatten()
        x[these] = change(x[these])
    weight, bias = _signed(draw, "weight", hidden_size, 1.5, 0.5), _signed(draw, "bias", hidden_size, 1.25, 0.25)
    return {"x": x.view(*shape), "weight": weight, "bias": bias}


def _signed(draw: Draw, name: str, count: int, spread: float, least: float) -> Tensor:
    """Values of either sign, of size `least` to `least` + `spread`."""
    even = draw.uniform(name, (count,))
    return (spread * even + least * even.sign()).to(torch.bfloat16)


def _constant_rows(x: Tensor) -> Tensor:
    """Of size 16 to 32."""
    share = x[:, :1].float() / x.float().abs().amax(-1, keepdim=True)
    return (16 * (share + share.sign())).to(x.dtype).expand_as(x)


def _nearly_constant(x: Tensor) -> Tensor:
    """All but the last element, the next bfloat16 up: float32 knows a mean of squares no better than the variance."""
    x = _constant_rows(x).clone()
    x[:, -1] *= 1 + 2.0**-7
    return x


def _offset(x: Tensor) -> Tensor:
    """From 47 to 49, where bfloat16 has nine values."""
    return (x.float() / x.float().abs().amax(-1, keepdim=True) + 48).to(x.dtype)


def _one_element(x: Tensor) -> Tensor:
    """The last column alone."""
    x = torch.zeros_like(x)
    x[:, -1] = 3.0
    return x


CHANGES: dict[str, Callable[[Tensor], Tensor]] = {
    "constant_rows": _constant_rows,
    "nearly_constant": _nearly_constant,
    "below_eps": lambda x: (x.float() / x.float().abs().amax(-1, keepdim=True) * 2.0**-10).to(x.dtype),
    "large": lambda x: x * 2.0**40,
    "one_element": _one_element,
    "offset": _offset,
    "zero_rows": torch.zeros_like,
}
SPECIAL = tuple(CHANGES)[:5]
CORNER_ROWS = {"one_row": 1, "tail": 37, **dict.fromkeys(CHANGES, 4), "nearly_constant": 9}


def corners(*, shape: Sequence[int]) -> dict[str, dict[str, Any]]:
    """The corner cases, each at its own small count of rows."""
    return {name: {"shape": [rows, *shape[1:]]} for name, rows in CORNER_ROWS.items()}


def make_corner(name: str, *, shape: Sequence[int], seed: int, device: str) -> dict[str, Tensor]:
    draw = Draw(seed, device)
    return _make(draw, draw.corner_kinds(name, math.prod(shape[:-1]), list(CHANGES)), shape)
