"""Inputs of `fused_qk_rmsnorm`: heads of very different size, uneven inside, so that every part of a sum counts."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from roofmark.operators.draw import Draw
from roofmark.records import OutputSpec

EPS = 1e-6
SEGMENTS = 16
CORNER_TOKENS = {"one_token": 1, "zero_heads": 3, "large": 3, "below_eps": 3, "one_element": 3, "tail": 131}


def outputs(
    *, num_tokens: int, head_num: int, kv_head_num: int, size_per_head: int, dtype: str
) -> tuple[OutputSpec, ...]:
    width = (head_num + 2 * kv_head_num) * size_per_head
    return (OutputSpec(name="out", shape=(num_tokens, width), dtype="float16"),)


def make_inputs(
    *, num_tokens: int, head_num: int, kv_head_num: int, size_per_head: int, dtype: str, seed: int, device: str
) -> dict[str, Tensor]:
    """`qkv` [T, (hq + 2 hk) d], `q_weight` and `k_weight` [d], float16.

    Even heads have a mean square of about 1 to 16 times eps, odd ones a root mean square of 1/6 to 10. Inside a
    head each sixteenth has its own size. One in 32 of the heads that are normed is zero, one has a single
    element, one is huge; the last of the queries and the last of the keys never are.
    """
    draw = Draw(seed, device)
    heads = head_num + 2 * kv_head_num
    exponent = draw.between("row", (num_tokens, heads, 1), -2.0, 4.0)
    exponent[:, : head_num + kv_head_num : 2].div_(3).add_(1.37 + 0.5 * math.log2(EPS))
    slope = draw.uniform("slope", exponent.shape).sign() * torch.linspace(-0.4, 0.4, SEGMENTS, device=device)
    uneven = draw.between("segment", (num_tokens, heads, SEGMENTS), -0.25, 0.25)
    kind = draw.bits("kind", (num_tokens, heads, 1), torch.uint8) >> 3
    kind[:, head_num - 1] = kind[:, head_num + kv_head_num - 1 :] = 31
    exponent += 8.0 * (kind == 1)
    size = torch.exp2(exponent + slope + uneven).mul_(kind != 0)

    qkv = draw.uniform("qkv", (num_tokens, heads * size_per_head), torch.float16)
    qkv.view(num_tokens, heads, SEGMENTS, -1).mul_(size.to(torch.float16).unsqueeze(-1))
    place = draw.bits("place", (num_tokens, heads, 1), torch.uint8) % size_per_head
    others = torch.arange(size_per_head, device=device) != place
    qkv.view(num_tokens, heads, -1).masked_fill_(others & (kind == 2), 0.0)
    return {
        "qkv": qkv,
        "q_weight": _weight(draw, "q_weight", size_per_head),
        "k_weight": _weight(draw, "k_weight", size_per_head),
    }


def _weight(draw: Draw, name: str, size: int) -> Tensor:
    """Signed weights of size 1/2 to 2, far from 1 on average."""
    spread = draw.uniform(name, (size,))
    return (1.5 * spread + 0.5 * spread.sign()).to(torch.float16)


def corners(*, num_tokens: int, **fixed: Any) -> dict[str, dict[str, Any]]:
    """The corner cases, each at its own small token count."""
    return {name: {"num_tokens": tokens, **fixed} for name, tokens in CORNER_TOKENS.items()}


def make_corner(name: str, *, seed: int, device: str, **sizes: Any) -> dict[str, Tensor]:
    made = make_inputs(**sizes, seed=seed, device=device)
    heads = made["qkv"].view(sizes["num_tokens"], -1, sizes["size_per_head"])
    if name == "zero_heads":
        heads[1:, ::2].zero_()
        heads[2].zero_()
    elif name == "large":  # squares that float16 can't hold
        heads.copy_(Draw(seed, device).uniform("large", heads.shape, torch.float16, 2.0**15))
    elif name == "below_eps":
        heads.copy_(Draw(seed, device).uniform("small", heads.shape, torch.float16, 2.0**-12))
    elif name == "one_element":
        heads[..., :-1].zero_()
        heads[..., -1] = 3.0
    return made
