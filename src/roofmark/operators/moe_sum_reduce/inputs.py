"""Inputs of `moe_sum_reduce`: every expert of every token at a size of its own.

Some tokens of every call are special: all experts but one are zero, or all, or some; a huge one is taken off again.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from roofmark.operators.draw import Draw
from roofmark.records import OutputSpec


def outputs(*, token_count: int, top_k: int, hidden_size: int, routed_scaling_factor: float) -> tuple[OutputSpec, ...]:
    return (OutputSpec(name="y", shape=(token_count, hidden_size), dtype="bfloat16"),)


def make_inputs(
    *, token_count: int, top_k: int, hidden_size: int, routed_scaling_factor: float, seed: int, device: str
) -> dict[str, Tensor]:
    """`x` [T, k, H], each expert's row of size 1/3 to 3/2. One token in eight is special."""
    draw = Draw(seed, device)
    return _make(draw, draw.kinds("kind", token_count, len(SPECIAL)), top_k, hidden_size)


def _make(draw: Draw, kind: Tensor, top_k: int, hidden_size: int) -> dict[str, Tensor]:
    """The inputs whose tokens are of these kinds."""
    token_count = len(kind)
    x = draw.uniform("x", (token_count, top_k, hidden_size), torch.bfloat16)
    size = torch.exp2(draw.between("size", (token_count, top_k, 1), -1.5, 0.5))
    x.mul_(size.to(torch.bfloat16))
    one = draw.bits("one", (token_count, 1), torch.uint8) % top_k == torch.arange(top_k, device=draw.device)
    some = draw.bits("some", (token_count, top_k), torch.uint8) % 2 == 0
    for number, change in enumerate(CHANGES.values()):
        rows = (kind == number).nonzero().flatten()
        x[rows] = change(x[rows], one[rows].unsqueeze(-1), some[rows].unsqueeze(-1))
    return {"x": x}


def _less_the_first(x: Tensor, size: float) -> Tensor:
    """The first expert, `size` times as large, comes back with the other sign as the last."""
    x[:, 0] *= size
    x[:, -1] = -x[:, 0]
    return x


# of tokens x [n, k, H] with one and some of the experts chosen at random
CHANGES: dict[str, Callable[[Tensor, Tensor, Tensor], Tensor]] = {
    "zero_rows": lambda x, one, some: torch.zeros_like(x),
    "missing_experts": lambda x, one, some: x * (one | some),
    "one_expert": lambda x, one, some: x * one,
    "swallowed": lambda x, one, some: _less_the_first(x, 2.0**9),  # in bfloat16 the others would be lost
    "large": lambda x, one, some: x * 2.0**100,
    "cancelled": lambda x, one, some: _less_the_first(x, 1.0),
    "small": lambda x, one, some: x * 2.0**-100,
}
SPECIAL = tuple(CHANGES)[:5]
CORNER_TOKENS = {"one_token": 1, "tail": 37, **dict.fromkeys(CHANGES, 4), "missing_experts": 9, "one_expert": 9}


def corners(
    *, token_count: int, top_k: int, hidden_size: int, routed_scaling_factor: float
) -> dict[str, dict[str, Any]]:
    """The corner cases, each at its own small token count."""
    fixed = {"top_k": top_k, "hidden_size": hidden_size, "routed_scaling_factor": routed_scaling_factor}
    return {name: {"token_count": tokens, **fixed} for name, tokens in CORNER_TOKENS.items()}


def make_corner(
    name: str, *, token_count: int, top_k: int, hidden_size: int, routed_scaling_factor: float, seed: int, device: str
) -> dict[str, Tensor]:
    draw = Draw(seed, device)
    return _make(draw, draw.corner_kinds(name, token_count, list(CHANGES)), top_k, hidden_size)
