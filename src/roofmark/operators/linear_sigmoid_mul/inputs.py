"""Inputs of `linear_sigmoid_mul`: gates all over the sigmoid, where neither 1/2 nor the bias alone will do.

Some rows of every call are special: x zero, of one element, or so large that the gates are 0 and 1; factors zero.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from roofmark.operators.draw import Draw
from roofmark.records import OutputSpec


def outputs(
    *, token_count: int, out_features: int, value_features: int | None = None, **_: Any
) -> tuple[OutputSpec, ...]:
    return (OutputSpec(name="y", shape=(token_count, value_features or out_features), dtype="bfloat16"),)


def make_inputs(
    *,
    token_count: int,
    hidden_size: int,
    out_features: int,
    seed: int,
    device: str,
    value_features: int | None = None,
) -> dict[str, Tensor]:
    """`x` [T, H], `weight` [O, H], `bias` [O], `m` [T, O], or [T, `value_features`] where one gate is for all.

    x times the weight has a standard deviation of about 2, the bias is of size 1/2 to 5/2, m of size 1/4 to 2.
    One row in eight is special.
    """
    draw = Draw(seed, device)
    kinds = draw.kinds("kind", token_count, len(SPECIAL))
    return _make(draw, kinds, hidden_size, out_features, value_features or out_features)


def _make(draw: Draw, kind: Tensor, hidden_size: int, out_features: int, values: int) -> dict[str, Tensor]:
    """The inputs whose rows are of these kinds."""
    token_count = len(kind)
    x = draw.uniform("x", (token_count, hidden_size), torch.bfloat16, 1.5)
    x.mul_(torch.exp2(draw.between("row", (token_count, 1), -0.75, 0.25)).to(torch.bfloat16))
    weight = draw.uniform("weight", (out_features, hidden_size), torch.bfloat16)
    size = torch.exp2(draw.between("column", (out_features, 1), -0.5, 0.5)).mul_(4.5 * hidden_size**-0.5)
    weight.mul_(size.to(torch.bfloat16))
    bias = draw.uniform("bias", (out_features,))
    factor = draw.uniform("m", (token_count, values), torch.bfloat16, 1.75)
    factor.add_(factor.sign().mul_(0.25))
    for number, change in enumerate(CHANGES.values()):
        rows = (kind == number).nonzero().flatten()
        x[rows], factor[rows] = change(x[rows], factor[rows])
    return {"x": x, "weight": weight, "bias": (2.0 * bias + 0.5 * bias.sign()).to(torch.bfloat16), "m": factor}


def _one_element(x: Tensor, m: Tensor) -> tuple[Tensor, Tensor]:
    """The last column alone, as large as a whole row."""
    x = torch.zeros_like(x)
    x[:, -1] = 64.0
    return x, m


CHANGES: dict[str, Callable[[Tensor, Tensor], tuple[Tensor, Tensor]]] = {
    "zero_rows": lambda x, m: (torch.zeros_like(x), m),
    "zero_factors": lambda x, m: (x, torch.zeros_like(m)),
    "saturated": lambda x, m: (x * 2.0**10, m),  # exp(z) overflows float32 on either side
    "one_element": _one_element,
    "large_factors": lambda x, m: (x, m * 2.0**20),
}
SPECIAL = tuple(CHANGES)[:4]
CORNER_TOKENS = {"one_token": 1, "tail": 37, **dict.fromkeys(CHANGES, 4), "far_negative": 3}


def corners(**sizes: Any) -> dict[str, dict[str, Any]]:
    """The corner cases, each at its own small token count."""
    return {name: {**sizes, "token_count": tokens} for name, tokens in CORNER_TOKENS.items()}


def make_corner(
    name: str,
    *,
    token_count: int,
    hidden_size: int,
    out_features: int,
    seed: int,
    device: str,
    value_features: int | None = None,
) -> dict[str, Tensor]:
    draw = Draw(seed, device)
    kinds = draw.corner_kinds(name, token_count, list(CHANGES))
    made = _make(draw, kinds, hidden_size, out_features, value_features or out_features)
    if name == "far_negative":
        made["bias"].sub_(8.0)
        made["m"].mul_(2.0**10)
    return made
