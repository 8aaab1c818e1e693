"""Inputs of `fused_add_rms_norm`: two terms that both count, rows of very different size, uneven inside.

Some rows of every call are special: zero, cancelled, below eps, as large as sums of squares bear, of one element.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from roofmark.operators.draw import Draw
from roofmark.records import OutputSpec


def outputs(*, token_count: int, hidden_size: int, eps: float) -> tuple[OutputSpec, ...]:
    shape = (token_count, hidden_size)
    return tuple(OutputSpec(name=name, shape=shape, dtype="bfloat16") for name in ("out", "residual"))


def make_inputs(*, token_count: int, hidden_size: int, eps: float, seed: int, device: str) -> dict[str, Tensor]:
    """`x` and `residual` [T, H], `weight` [H]; the residual is half again as large as x, and leans on it.

    The sums of even rows have a mean square of 1 to 16 times `eps`, those of odd ones a root mean square of about
    1/4 to 16. Inside a row each sixteenth has its own size, rising or falling along the row. One row in eight is
    special.
    """
    draw = Draw(seed, device)
    return _make(draw, draw.kinds("kind", token_count, len(SPECIAL)), hidden_size, eps)


def _make(draw: Draw, kind: Tensor, hidden_size: int, eps: float) -> dict[str, Tensor]:
    """The inputs whose rows are of these kinds."""
    token_count = len(kind)
    segments = math.gcd(hidden_size, 16)
    exponent = draw.between("row", (token_count, 1), -2.0, 4.0)
    exponent[::2].div_(3).add_(0.65 + 0.5 * math.log2(eps))
    slope = draw.uniform("slope", (token_count, 1)).sign() * torch.linspace(-0.4, 0.4, segments, device=draw.device)
    made = {}
    for name, shift in (("x", 0.0), ("residual", math.log2(1.5))):
        uneven = draw.between(f"segment {name}", (token_count, segments), -0.25, 0.25).add_(shift)
        made[name] = draw.uniform(name, (token_count, hidden_size), torch.bfloat16)
        size = torch.exp2(exponent + slope + uneven).to(torch.bfloat16)
        made[name].view(token_count, segments, -1).mul_(size.unsqueeze(-1))
    lean = draw.uniform("lean", (token_count, 1))
    made["residual"].addcmul_(made["x"], (0.3 * lean + 0.3 * lean.sign()).to(torch.bfloat16))
    made["weight"] = _weight(draw, hidden_size)
    for number, change in enumerate(CHANGES.values()):
        rows = (kind == number).nonzero().flatten()
        made["x"][rows], made["residual"][rows] = change(made["x"][rows], made["residual"][rows])
    return made


def _weight(draw: Draw, hidden_size: int) -> Tensor:
    """Signed weights of size 1/2 to 2, far from 1 on average."""
    spread = draw.uniform("weight", (hidden_size,))
    return (1.5 * spread + 0.5 * spread.sign()).to(torch.bfloat16)


def _one_element(x: Tensor, residual: Tensor) -> tuple[Tensor, Tensor]:
    """The last column alone, 3 in all."""
    last = torch.zeros_like(x, dtype=torch.bool)
    last[:, -1] = True
    return last.to(x.dtype), last.to(x.dtype) * 2


CHANGES: dict[str, Callable[[Tensor, Tensor], tuple[Tensor, Tensor]]] = {
    "zero_rows": lambda x, residual: (torch.zeros_like(x), torch.zeros_like(residual)),
    "cancelled": lambda x, residual: (-residual, residual),
    "below_eps": lambda x, residual: (x * 2.0**-16, residual * 2.0**-16),
    "large": lambda x, residual: (x * 2.0**40, residual * 2.0**40),
    "one_element": _one_element,
    "nearly_cancelled": lambda x, residual: (x * 2.0**-6 - residual, residual),
}
SPECIAL = tuple(CHANGES)[:5]
CORNER_TOKENS = {"one_token": 1, "tail": 37, **dict.fromkeys(CHANGES, 4)}


def corners(*, token_count: int, hidden_size: int, eps: float) -> dict[str, dict[str, Any]]:
    """The corner cases, each at its own small token count."""
    return {
        name: {"token_count": tokens, "hidden_size": hidden_size, "eps": eps} for name, tokens in CORNER_TOKENS.items()
    }


def make_corner(
    name: str, *, token_count: int, hidden_size: int, eps: float, seed: int, device: str
) -> dict[str, Tensor]:
    draw = Draw(seed, device)
    return _make(draw, draw.corner_kinds(name, token_count, list(CHANGES)), hidden_size, eps)
