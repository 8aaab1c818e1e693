"""Inputs of `moe_topk_gating_softmax`: each row with a scale and an offset of its own."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from roofmark.operators.draw import Draw
from roofmark.records import OutputSpec

CORNER_TOKENS = {"one_token": 1, "ties": 9, "zeros": 3, "masked": 5, "sharp": 5, "flat": 5, "tail": 37}


def outputs(*, token_count: int, num_experts: int, top_k: int) -> tuple[OutputSpec, ...]:
    shape = (token_count, top_k)
    return (
        OutputSpec(name="weights", shape=shape, dtype="float32"),
        OutputSpec(name="ids", shape=shape, dtype="int32"),
    )


def make_inputs(*, token_count: int, num_experts: int, top_k: int, seed: int, device: str) -> dict[str, Tensor]:
    """`gating` [T, E] float32: cubes of even spread, so that the first of 128 takes about a third."""
    draw = Draw(seed, device)
    gating = draw.uniform("gating", (token_count, num_experts)).pow_(3)
    gating.mul_(draw.between("scale", (token_count, 1), 5.0, 10.0))
    gating.add_(draw.between("offset", (token_count, 1), -16.0, 16.0))
    return {"gating": gating}


def corners(*, token_count: int, num_experts: int, top_k: int) -> dict[str, dict[str, Any]]:
    """The corner cases, each at its own small token count."""
    return {
        name: {"token_count": tokens, "num_experts": num_experts, "top_k": top_k}
        for name, tokens in CORNER_TOKENS.items()
    }


def make_corner(
    name: str, *, token_count: int, num_experts: int, top_k: int, seed: int, device: str
) -> dict[str, Tensor]:
    made = make_inputs(token_count=token_count, num_experts=num_experts, top_k=top_k, seed=seed, device=device)
    gating = made["gating"]
    if name == "ties":  # whole numbers: many experts share a logit, also across the edge of the top
        gating.round_()
    elif name == "zeros":
        gating[1:].zero_()
    elif name == "masked":  # as many as are chosen stay, anywhere in the row
        order = Draw(seed, device).bits("masked", tuple(gating.shape), torch.int64).argsort(dim=-1)
        gating.scatter_(1, order[:, top_k:], -torch.inf)
    elif name == "sharp":  # all but the first underflow
        gating.mul_(1e4)
    elif name == "flat":
        gating.mul_(1e-3)
    return made
