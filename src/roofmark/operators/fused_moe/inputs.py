"""Inputs of `fused_moe`: gates where SiLU bends, experts of different size and load, uneven weights.

Some tokens of every call are special: zero, so large that gates are open or shut, with the weight on one expert.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from roofmark.operators import routing
from roofmark.operators.draw import Draw
from roofmark.operators.experts import touched
from roofmark.records import OutputSpec

SPECIAL = ("zeros", "large", "one_weight")
CORNER_TOKENS = {"one_token": 1, "tail": 37, **dict.fromkeys(SPECIAL, 3), "few_experts": 19, "crowded": 65}
# Standard deviation of the outputs. Where their products cancel, what bfloat16 intermediates lose must stay below
# the 1e-2 that every answer may be off.
OUT = 0.2
# Standard deviation of gates, where that of up is 1, and the root mean square of silu(gate) · up.
GATE = 1.5
HIDDEN = 0.957
# Tokens whose gates saturate, and what that takes off their weights to keep the outputs' size.
LARGE, LARGE_WEIGHT = 64.0, 2.0**-12


def outputs(*, token_count: int, hidden_size: int, **_: Any) -> tuple[OutputSpec, ...]:
    return (OutputSpec(name="out", shape=(token_count, hidden_size), dtype="bfloat16"),)


def make_inputs(
    *, token_count: int, hidden_size: int, intermediate_size: int, num_experts: int, top_k: int, seed: int, device: str
) -> dict[str, Tensor]:
    """`hidden` [T, H], `w1` [E, 2 I, H], `w2` [E, H, I], `topk_weights` [T, k] float32 and `topk_ids` [T, k] int32.

    As many experts are touched as the bytes of the work say. One token in eight is special.
    """
    draw = Draw(seed, device)
    kind = draw.kinds("kind", token_count, len(SPECIAL))
    used = touched(token_count, num_experts, top_k)
    ids = routing.choose(draw, token_count, num_experts, top_k, used)
    return _make(draw, kind, ids, hidden_size, intermediate_size, num_experts)


def _make(draw: Draw, kind: Tensor, ids: Tensor, width: int, inner: int, experts: int) -> dict[str, Tensor]:
    """The inputs of tokens of these kinds that go to the experts `ids`."""
    tokens, top_k = ids.shape
    size = torch.exp2(draw.between("token", (tokens, 1), -0.25, 0.25)).to(torch.bfloat16)
    hidden = draw.uniform("hidden", (tokens, width), torch.bfloat16, math.sqrt(3)).mul_(size)
    weights = routing.weigh(draw, tokens, top_k)
    hidden[kind == SPECIAL.index("zeros")] = 0.0
    large, lone = kind == SPECIAL.index("large"), kind == SPECIAL.index("one_weight")
    hidden[large] *= LARGE
    weights[large] *= LARGE_WEIGHT
    weights[lone] = torch.where(weights[lone] == weights[lone].amax(-1, keepdim=True), 0.5, 0.0)

    # of even spread over -a to a; its mean square is a third of a's
    w1 = draw.uniform("w1", (experts, 2, inner, width), torch.bfloat16, math.sqrt(3 / width))
    w1[:, 0] *= GATE
    w2 = draw.uniform("w2", (experts, width, inner), torch.bfloat16, math.sqrt(3 / inner) * OUT / HIDDEN)
    factor = torch.exp2(draw.between("expert", (experts, 1, 1), -0.25, 0.25)) * math.sqrt(top_k / 1.66)
    w2.mul_(factor.to(torch.bfloat16))
    return {
        "hidden": hidden,
        "w1": w1.view(experts, 2 * inner, width),
        "w2": w2,
        "topk_weights": weights,
        "topk_ids": ids,
    }


def corners(
    *, token_count: int, hidden_size: int, intermediate_size: int, num_experts: int, top_k: int
) -> dict[str, dict[str, Any]]:
    """The corner cases, each at its own small token count."""
    fixed = {
        "hidden_size": hidden_size,
        "intermediate_size": intermediate_size,
        "num_experts": num_experts,
        "top_k": top_k,
    }
    return {name: {"token_count": tokens, **fixed} for name, tokens in CORNER_TOKENS.items()}


def make_corner(
    name: str, *, token_count: int, hidden_size: int, intermediate_size: int, num_experts: int, top_k: int,
    seed: int, device: str,
) -> dict[str, Tensor]:  # fmt: skip
    draw = Draw(seed, device)
    ids = routing.corner(name, draw, token_count, num_experts, top_k)
    kind = draw.corner_kinds(name, token_count, SPECIAL)
    return _make(draw, kind, ids, hidden_size, intermediate_size, num_experts)
