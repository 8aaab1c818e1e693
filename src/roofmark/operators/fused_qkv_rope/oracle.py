"""The judge's side of `fused_qkv_rope`: float64 values of chosen rows, and a right kernel's error."""

from __future__ import annotations

import math
import random
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from roofmark.operators.draw import chunks, near
from roofmark.operators.expected import Expected

BASE = 10000.0
# Sines, cosines, products and sums in float32, relative to |x[i]| + |x[i + d/2]|.
FLOAT32 = 2.0**-21
# An angle in float32, relative: a product, and a power of the base whose exponent is rounded, so that the error
# grows with its size.
ANGLE = 2.0**-22


def neighbours(rng: random.Random, **sizes: Any) -> tuple[dict[str, Any], dict[str, Any]]:
    first, second = near(rng, sizes["total_tokens"])
    return {**sizes, "total_tokens": first}, {**sizes, "total_tokens": second}


def expected_rows(inputs: Mapping[str, Tensor], sizes: Mapping[str, Any], index: Tensor) -> dict[str, Expected]:
    """`q`, `k` and `v` of the rows `index`.

    Bound: one rounding of the output's type, relative to it, and what float32 leaves open of the angle, which at
    the last positions is more. A sum with the bias may be rounded before the turn, as in the deployed kernel, or
    not. Without a bias the value heads are the inputs', bit by bit.
    """
    qkv, bias = inputs["qkv"], inputs.get("bias")
    rounding = torch.finfo(qkv.dtype).eps / 2
    turned = sizes["num_heads"] + sizes["num_kv_heads"]
    shape = (len(index), turned + sizes["num_kv_heads"], sizes["head_dim"])
    value = torch.empty(shape, dtype=torch.float64, device=qkv.device)
    bound = torch.zeros_like(value)
    for part in chunks(len(index), 48 * qkv.shape[1]):
        x = qkv[index[part]].double()
        value[part] = (x if bias is None else x + bias.double()).view(-1, *shape[1:])
        heads = value[part, :turned]
        angle, slack = _angles(inputs["positions"][index[part]], sizes["rope_dim"])
        early = 0.0 if bias is None else rounding
        bound[part, :turned] = _spread(heads, angle, slack, early)
        value[part, :turned] = _turn(heads, angle.cos(), angle.sin())
    bound += value.abs() * rounding
    parts = [sizes["num_heads"], sizes["num_kv_heads"], sizes["num_kv_heads"]]
    (q, k, v), (near_q, near_k, near_v) = torch.split(value, parts, dim=1), torch.split(bound, parts, dim=1)
    return {
        "q": Expected(q, near_q),
        "k": Expected(k, near_k),
        "v": Expected(v, None if bias is None else near_v),
    }


def _angles(positions: Tensor, rope_dim: int) -> tuple[Tensor, Tensor]:
    """The angles [n, 1, d / 2] and how far float32 may be off them."""
    share = torch.arange(0, rope_dim, 2, dtype=torch.float64, device=positions.device) / rope_dim
    exponent = share * math.log2(BASE)
    angle = positions.double().view(-1, 1, 1) * torch.exp2(-exponent)
    return angle, angle * (1 + exponent) * ANGLE


def _turn(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    first, second = x.chunk(2, dim=-1)
    return torch.cat([first * cos - second * sin, second * cos + first * sin], dim=-1)


def _spread(x: Tensor, angle: Tensor, slack: Tensor, early: float) -> Tensor:
    """The largest right error before the last rounding; `early` is the relative one of the sums with the bias."""
    first, second = x.abs().chunk(2, dim=-1)
    cos, sin = angle.cos().abs() * early, angle.sin().abs() * early
    open_ = (first + second) * (slack + FLOAT32)
    return torch.cat([open_ + first * cos + second * sin, open_ + second * cos + first * sin], dim=-1)
