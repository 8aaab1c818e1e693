"""Inputs of `mrope`: three positions a token, far from each other but in text, heads of very different size."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from roofmark.operators.draw import Draw
from roofmark.records import OutputSpec

BASE = 10000.0
CONTEXT = 1 << 15
CORNER_TOKENS = {"one_token": 1, "text": 5, "starts": 5, "zero_heads": 3, "large": 3, "tail": 131}


def outputs(
    *, token_count: int, num_query_heads: int, num_kv_heads: int, head_size: int, **_: Any
) -> tuple[OutputSpec, ...]:
    heads = {"q": num_query_heads, "k": num_kv_heads}
    return tuple(OutputSpec(name=n, shape=(token_count, h * head_size), dtype="bfloat16") for n, h in heads.items())


def make_inputs(
    *,
    token_count: int,
    num_query_heads: int,
    num_kv_heads: int,
    head_size: int,
    rotary_dim: int,
    mrope_section: Sequence[int],
    mrope_interleaved: bool,
    is_neox_style: bool,
    seed: int,
    device: str,
) -> dict[str, Tensor]:
    """`q` [T, hq d], `k` [T, hk d], and `cos`, `sin` [3, T, d / 2] float32 of three positions a token.

    One token in eight is text: its positions are equal. One in 32 of the heads is zero, one is huge; the last
    token's never are.
    """
    draw = Draw(seed, device)
    positions = draw.bits("positions", (3, token_count), torch.int32) & (CONTEXT - 1)
    text = draw.bits("text", (token_count,), torch.uint8) < 32
    text[-1:] = False
    positions = torch.where(text, positions[:1], positions)
    frequency = torch.pow(BASE, -torch.arange(0, rotary_dim, 2, device=device) / rotary_dim)
    angle = positions.unsqueeze(-1) * frequency
    return {
        "q": _heads(draw, "q", token_count, num_query_heads, head_size),
        "k": _heads(draw, "k", token_count, num_kv_heads, head_size),
        "cos": angle.cos(),
        "sin": angle.sin(),
    }


def _heads(draw: Draw, name: str, tokens: int, heads: int, head_size: int) -> Tensor:
    kind = draw.bits(f"{name} kind", (tokens, heads, 1), torch.uint8) >> 3
    kind[-1:] = 31
    size = torch.exp2(draw.between(f"{name} size", kind.shape, -1.0, 1.5) + 10.0 * (kind == 1)).mul_(kind != 0)
    x = draw.uniform(name, (tokens, heads * head_size), torch.bfloat16)
    x.view(tokens, heads, head_size).mul_(size.to(torch.bfloat16))
    return x


def corners(*, token_count: int, **fixed: Any) -> dict[str, dict[str, Any]]:
    """The corner cases, each at its own small token count."""
    return {name: {"token_count": tokens, **fixed} for name, tokens in CORNER_TOKENS.items()}


def make_corner(name: str, *, seed: int, device: str, **sizes: Any) -> dict[str, Tensor]:
    made = make_inputs(**sizes, seed=seed, device=device)
    q, k, cos, sin = made.values()
    if name == "text":  # three equal positions
        cos[1:], sin[1:] = cos[:1].clone(), sin[:1].clone()
    elif name == "starts":  # the first token at position 0 throughout, each other one in one of the three
        for row in range(len(q)):
            which = slice(None) if row == 0 else slice(row % 3, row % 3 + 1)
            cos[which, row], sin[which, row] = 1.0, 0.0
    elif name == "zero_heads":
        q.view(len(q), -1, sizes["head_size"])[1:, ::2].zero_()
        k[1:].zero_()
    elif name == "large":
        draw = Draw(seed, device)
        q.copy_(draw.uniform("large q", q.shape, q.dtype, 2.0**14))
        k.copy_(draw.uniform("large k", k.shape, k.dtype, 2.0**14))
    return made
