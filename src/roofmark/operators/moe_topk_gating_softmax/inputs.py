"""Inputs of `moe_topk_gating_softmax`: each row with a scale and an offset of its own.

Some rows of every call are special: tied, all zero, masked, flat, or so far from 0 that an exponential overflows.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from roofmark.operators.draw import Draw
from roofmark.records import OutputSpec

SPECIAL = ("ties", "zeros", "masked", "far", "flat")
CORNER_TOKENS = {"one_token": 1, "ties": 9, "zeros": 3, "masked": 5, "sharp": 5, "flat": 5, "tail": 37}


def outputs(*, token_count: int, num_experts: int, top_k: int) -> tuple[OutputSpec, ...]:
    shape = (token_count, top_k)
    return (
        OutputSpec(name="weights", shape=shape, dtype="float32"),
        OutputSpec(name="ids", shape=shape, dtype="int32"),
    )


def make_inputs(*, token_count: int, num_experts: int, top_k: int, seed: int, device: str) -> dict[str, Tensor]:
    """`gating` [T, E] float32: cubes of even spread, so that the first of 128 takes about a third.

    One row in eight is special.
    """
    draw = Draw(seed, device)
    return _make(draw, draw.kinds("kind", token_count, len(SPECIAL)), num_experts, top_k)


def _make(draw: Draw, kind: Tensor, num_experts: int, top_k: int) -> dict[str, Tensor]:
    """The inputs whose rows are of these kinds."""
    token_count = len(kind)
    gating = draw.uniform("gating", (token_count, num_experts)).pow_(3)
    gating.mul_(draw.between("scale", (token_count, 1), 5.0, 10.0))
    gating.add_(draw.between("offset", (token_count, 1), -16.0, 16.0))
    for number, name in enumerate(SPECIAL):
        places = (kind == number).nonzero().flatten()
        gating[places] = _changed(draw, name, gating[places], top_k)
    return {"gating": gating}


def _changed(draw: Draw, name: str, gating: Tensor, top_k: int) -> Tensor:
    """Special rows, made from plain ones."""
    if name == "ties":  # whole numbers: many experts share a logit, also across the edge of the top
        return gating.round()
    if name == "zeros":
        return torch.zeros_like(gating)
    if name == "masked":  # as many as are chosen stay, anywhere in the row
        order = draw.bits("masked", tuple(gating.shape), torch.int64).argsort(dim=-1)
        return gating.scatter(1, order[:, top_k:], -torch.inf)
    if name == "far":  # with the maximum not taken off, every exponential overflows, or none is left
        return gating * 4 + gating.mean(dim=-1, keepdim=True).sign() * 128
    return gating * 1e-3  # flat


def corners(*, token_count: int, num_experts: int, top_k: int) -> dict[str, dict[str, Any]]:
    """The corner cases, each at its own small token count."""
    return {
        name: {"token_count": tokens, "num_experts": num_experts, "top_k": top_k}
        for name, tokens in CORNER_TOKENS.items()
    }


def make_corner(
    name: str, *, token_count: int, num_experts: int, top_k: int, seed: int, device: str
) -> dict[str, Tensor]:
    draw = Draw(seed, device)
    made = _make(draw, draw.corner_kinds(name, token_count, SPECIAL), num_experts, top_k)
    if name == "sharp":  # all but the first underflow
        made["gating"].mul_(1e4)
    return made
