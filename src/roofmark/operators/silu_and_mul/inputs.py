"""Inputs of `silu_and_mul`: gates where SiLU bends, factors of order one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from roofmark.operators.draw import Draw
from roofmark.records import OutputSpec

CORNER_TOKENS = {"one_token": 1, "zeros": 3, "large": 3, "far_negative": 3, "small": 3, "tail": 37}


def outputs(*, shape: Sequence[int]) -> tuple[OutputSpec, ...]:
    return (OutputSpec(name="y", shape=(shape[0], shape[1] // 2), dtype="bfloat16"),)


def make_inputs(*, shape: Sequence[int], seed: int, device: str) -> dict[str, Tensor]:
    """`x` [T, 2 I]: gates over -4 to 4, factors over -2 to 2."""
    x = Draw(seed, device).uniform("x", shape, torch.bfloat16, 4.0)
    x[:, shape[1] // 2 :].mul_(0.5)
    return {"x": x}


def corners(*, shape: Sequence[int]) -> dict[str, dict[str, Any]]:
    """The corner cases, each at its own small token count."""
    return {name: {"shape": [tokens, shape[1]]} for name, tokens in CORNER_TOKENS.items()}


def make_corner(name: str, *, shape: Sequence[int], seed: int, device: str) -> dict[str, Tensor]:
    made = make_inputs(shape=shape, seed=seed, device=device)
    gate, up = made["x"].chunk(2, dim=-1)
    if name == "zeros":
        gate[1].zero_()
        up[2].zero_()
    elif name == "large":  # exp(-gate) overflows float32 where the gate is negative
        gate.mul_(2.0**12)
        up.mul_(2.0**12)
    elif name == "far_negative":
        gate.abs_().add_(16.0).neg_()
    elif name == "small":
        gate.mul_(2.0**-20)
        up.mul_(2.0**20)
    return made
