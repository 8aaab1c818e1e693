"""Inputs of `gated_rms_norm`: rows of very different size, uneven inside, and gates where SiLU bends.

Some rows of every call are special: zero, below eps, as large as sums of squares bear, of one element, of huge gates.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from roofmark.operators.draw import Draw
from roofmark.records import OutputSpec


def outputs(*, rows: int, hidden_size: int, **_: Any) -> tuple[OutputSpec, ...]:
    return (OutputSpec(name="y", shape=(rows, hidden_size), dtype="bfloat16"),)


def make_inputs(*, rows: int, hidden_size: int, eps: float, seed: int, device: str, **_: Any) -> dict[str, Tensor]:
    """`x`, `z` [R, H] and `weight` [H]; gates over -4 to 4.

    Even rows of x have a mean square of 1 to 16 times `eps`, odd ones a root mean square of about 1/6 to 10.
    Inside a row each sixteenth has its own size, rising or falling along the row. One row in eight is special.
    """
    draw = Draw(seed, device)
    return _make(draw, draw.kinds("kind", rows, len(SPECIAL)), hidden_size, eps)


def _make(draw: Draw, kind: Tensor, hidden_size: int, eps: float) -> dict[str, Tensor]:
    """The inputs whose rows are of these kinds."""
    rows = len(kind)
    segments = math.gcd(hidden_size, 16)
    exponent = draw.between("row", (rows, 1), -2.0, 4.0)
    exponent[::2].div_(3).add_(1.37 + 0.5 * math.log2(eps))
    slope = draw.uniform("slope", (rows, 1)).sign() * torch.linspace(-0.4, 0.4, segments, device=draw.device)
    uneven = draw.between("segment", (rows, segments), -0.25, 0.25)
    x = draw.uniform("x", (rows, hidden_size), torch.bfloat16)
    x.view(rows, segments, -1).mul_(torch.exp2(exponent + slope + uneven).to(torch.bfloat16).unsqueeze(-1))
    z = draw.uniform("z", (rows, hidden_size), torch.bfloat16, 4.0)
    for number, change in enumerate(CHANGES.values()):
        these = (kind == number).nonzero().flatten()
        x[these], z[these] = change(x[these], z[these])
    return {"x": x, "z": z, "weight": _weight(draw, hidden_size)}


def _weight(draw: Draw, hidden_size: int) -> Tensor:
    """Signed weights of size 1/2 to 2, far from 1 on average."""
    spread = draw.uniform("weight", (hidden_size,))
    return (1.5 * spread + 0.5 * spread.sign()).to(torch.bfloat16)


def _one_element(x: Tensor, z: Tensor) -> tuple[Tensor, Tensor]:
    """The last column alone, of any gate."""
    x = torch.zeros_like(x)
    x[:, -1] = 3.0
    return x, z


CHANGES: dict[str, Callable[[Tensor, Tensor], tuple[Tensor, Tensor]]] = {
    "zero_rows": lambda x, z: (torch.zeros_like(x), z),
    "below_eps": lambda x, z: (x * 2.0**-16, z),
    "large": lambda x, z: (x * 2.0**40, z),
    "one_element": _one_element,
    "large_gates": lambda x, z: (x, z * 2.0**8),  # exp(-z) overflows float32 where z is negative
    "zero_gates": lambda x, z: (x, torch.zeros_like(z)),
    "far_negative": lambda x, z: (x, -6.0 - z.abs()),
}
SPECIAL = tuple(CHANGES)[:5]
CORNER_ROWS = {"one_row": 1, "tail": 37, **dict.fromkeys(CHANGES, 4)}


def corners(*, hidden_size: int, eps: float, norm_before_gate: bool, activation: str, **_: Any) -> dict[str, Any]:
    """The corner cases, each at its own small count of rows."""
    fixed = {"hidden_size": hidden_size, "eps": eps, "norm_before_gate": norm_before_gate, "activation": activation}
    return {name: {"rows": rows, **fixed} for name, rows in CORNER_ROWS.items()}


def make_corner(
    name: str, *, rows: int, hidden_size: int, eps: float, seed: int, device: str, **_: Any
) -> dict[str, Tensor]:
    draw = Draw(seed, device)
    return _make(draw, draw.corner_kinds(name, rows, list(CHANGES)), hidden_size, eps)
