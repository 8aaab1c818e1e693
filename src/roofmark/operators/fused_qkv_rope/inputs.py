"""Inputs of `fused_qkv_rope`: positions all over the context, the first one far from 0, where nothing turns."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from roofmark.operators.draw import Draw
from roofmark.records import OutputSpec

TORCH_DTYPES = {"bf16": torch.bfloat16, "fp16": torch.float16}
# Beyond, what float32 leaves open of an angle would exceed the paper's tolerance where the terms of a sum cancel.
CONTEXT = 1 << 13
CORNER_TOKENS = {
    "one_token": 1,
    "first_positions": 5,
    "last_positions": 5,
    "one_position": 7,
    "zero_heads": 3,
    "large": 3,
    "bias": 37,
    "tail": 131,
}


def outputs(
    *, total_tokens: int, num_heads: int, num_kv_heads: int, head_dim: int, rope_dim: int, dtype: str
) -> tuple[OutputSpec, ...]:
    kind = str(TORCH_DTYPES[dtype]).removeprefix("torch.")
    heads = {"q": num_heads, "k": num_kv_heads, "v": num_kv_heads}
    return tuple(OutputSpec(name=n, shape=(total_tokens, h, head_dim), dtype=kind) for n, h in heads.items())


def make_inputs(
    *,
    total_tokens: int,
    num_heads: int,
    num_kv_heads: int,
    head_dim: int,
    rope_dim: int,
    dtype: str,
    seed: int,
    device: str,
) -> dict[str, Tensor]:
    """`qkv` [T, (hq + 2 hk) d] and `positions` [T] int32; there is no bias.

    Every head has a size of its own. One in 32 of the query and key heads is zero; the last of either never is.
    One position in 16 is 0, but never the first one, which is at least 1024.
    """
    draw = Draw(seed, device)
    kind = TORCH_DTYPES[dtype]
    heads = num_heads + 2 * num_kv_heads
    live = draw.bits("live", (total_tokens, heads, 1), torch.uint8) >= 8
    live[:, num_heads - 1] = live[:, num_heads + num_kv_heads - 1 :] = True
    size = torch.exp2(draw.between("size", live.shape, -1.5, 0.25)).mul_(live)
    qkv = draw.uniform("qkv", (total_tokens, heads * head_dim), kind)
    qkv.view(total_tokens, heads, head_dim).mul_(size.to(kind))

    positions = draw.bits("positions", (total_tokens,), torch.int32) & (CONTEXT - 1)
    positions[draw.bits("starts", (total_tokens,), torch.uint8) < 16] = 0
    positions[:1] |= CONTEXT // 8
    return {"qkv": qkv, "positions": positions}


def corners(*, total_tokens: int, **fixed: Any) -> dict[str, dict[str, Any]]:
    """The corner cases, each at its own small token count."""
    return {name: {"total_tokens": tokens, **fixed} for name, tokens in CORNER_TOKENS.items()}


def make_corner(name: str, *, seed: int, device: str, **sizes: Any) -> dict[str, Tensor]:
    """As `make_inputs`; the case `bias` has a third input, `bias` [(hq + 2 hk) d]."""
    made = make_inputs(**sizes, seed=seed, device=device)
    qkv, positions = made["qkv"], made["positions"]
    if name == "first_positions":
        positions.copy_(torch.arange(len(positions)))
    elif name == "last_positions":
        positions.copy_(CONTEXT - 1 - torch.arange(len(positions)))
    elif name == "one_position":
        positions.fill_(int(positions[0]))
    elif name == "zero_heads":
        qkv.view(len(qkv), -1, sizes["head_dim"])[1:, ::2].zero_()
    elif name == "large":  # at positions so small that the angles are known
        positions.copy_(torch.arange(len(positions)))
        qkv.copy_(Draw(seed, device).uniform("large", qkv.shape, qkv.dtype, 2.0**14))
    elif name == "bias":
        made["bias"] = Draw(seed, device).uniform("bias", qkv.shape[1:], qkv.dtype, 0.75)
    return made
