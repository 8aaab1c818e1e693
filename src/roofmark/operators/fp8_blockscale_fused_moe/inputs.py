"""Inputs of `fp8_blockscale_fused_moe`: sums of one sign, so that fp8 between the products is not lost in them.

Some tokens of every call are special: zero, of the largest codes, of subnormal ones, so large that gates are open or
shut, with the weight on one expert.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from roofmark.operators import fp8, routing
from roofmark.operators.draw import Draw, chunks
from roofmark.operators.experts import touched
from roofmark.records import OutputSpec

BLOCK = 128
SPECIAL = ("zeros", "largest", "subnormal", "large", "one_weight")
CORNER_TOKENS = {"one_token": 1, "tail": 37, **dict.fromkeys(SPECIAL, 3), "few_experts": 19, "crowded": 65}
# Root mean square of two to the power of what spreads evenly over -1 to 1.
SPREAD_RMS = 1.163
# Standard deviation of gates, where that of up is 1, and the root mean square of silu(gate) · up.
GATE, HIDDEN = 1.5, 1.55
# The root of the sum of squares that add up to an output, as its root mean square over outputs: some are four times
# that, where one inner value in a thousand is 40 times its root mean square. What fp8 between the products is off by,
# 2.35 % of that root as a standard deviation and a sixteenth of a single term at most, must stay below the 1e-2 and
# 5 % that every answer may be off: so large terms are of one sign and don't cancel, and an output is no less than
# the root. Most are 7 to 20 times as large.
ROOT = 0.025
# Tokens whose gates saturate, and what that takes off their weights to keep the outputs' size.
LARGE, LARGE_WEIGHT = 64.0, 2.0**-12
# Bytes of weights that are made at a time.
PIECE = 1 << 24


def outputs(*, token_count: int, hidden_size: int, **_: Any) -> tuple[OutputSpec, ...]:
    return (OutputSpec(name="out", shape=(token_count, hidden_size), dtype="bfloat16"),)


def make_inputs(
    *, token_count: int, hidden_size: int, intermediate_size: int, num_experts: int, top_k: int, seed: int, device: str
) -> dict[str, Tensor]:
    """`hidden` [T, H], `w1` [E, 2 I, H], `w2` [E, H, I] in the device's own fp8 e4m3, their scales, and the routing.

    Scales spread over a factor of 4. As many experts are touched as the bytes of the work say. One token in eight
    is special.
    """
    draw = Draw(seed, device)
    kind = draw.kinds("kind", token_count, len(SPECIAL))
    used = touched(token_count, num_experts, top_k)
    ids = routing.choose(draw, token_count, num_experts, top_k, used)
    return _make(draw, kind, ids, hidden_size, intermediate_size, num_experts)


def _make(draw: Draw, kind: Tensor, ids: Tensor, width: int, inner: int, experts: int) -> dict[str, Tensor]:
    """The inputs of tokens of these kinds that go to the experts `ids`."""
    (tokens, top_k), dtype = ids.shape, fp8.kind(draw.device)
    rms = fp8.codes_rms(dtype) * SPREAD_RMS
    hidden_scales = _scales(draw, "hidden_scales", (tokens, width // BLOCK)).div_(rms * width**0.25)
    hidden_scales.mul_(torch.exp2(draw.between("token", (tokens, 1), -0.25, 0.25)))
    w1_scales = _scales(draw, "w1_scales", (experts, 2, inner // BLOCK, width // BLOCK)).div_(rms * width**0.25)
    w1_scales[:, 0] *= GATE
    w2_scales = _scales(draw, "w2_scales", (experts, width // BLOCK, inner // BLOCK))
    w2_scales.mul_(ROOT / (rms * HIDDEN) * math.sqrt(top_k / 1.66 / inner))
    w2_scales.mul_(torch.exp2(draw.between("expert", (experts, 1, 1), -0.25, 0.25)))
    hidden = fp8.codes(draw, "hidden", (tokens, width), dtype)
    weights = routing.weigh(draw, tokens, top_k)
    for number, name in enumerate(SPECIAL):
        places = (kind == number).nonzero().flatten()
        _make_special(name, places, hidden, hidden_scales, weights)
    return {
        "hidden": hidden,
        "w1": _w1(draw, experts, inner, width, dtype),
        "w2": _w2(draw, experts, inner, width, dtype),
        "hidden_scales": hidden_scales,
        "w1_scales": w1_scales.view(experts, -1, width // BLOCK),
        "w2_scales": w2_scales,
        "topk_weights": weights,
        "topk_ids": ids,
    }


def _scales(draw: Draw, name: str, shape: tuple[int, ...]) -> Tensor:
    return torch.exp2(draw.between(name, shape, -1.0, 1.0))


def _make_special(name: str, places: Tensor, hidden: Tensor, scales: Tensor, weights: Tensor) -> None:
    """Changes the tokens `places`."""
    codes, dtype = hidden.view(torch.uint8), hidden.dtype
    if name == "zeros":
        codes[places] &= 0x80
    elif name == "largest":
        codes[places] = codes[places] & 0x80 | fp8.largest_code(dtype)
        scales[places] *= fp8.codes_rms(dtype) / fp8.largest(dtype)
    elif name == "subnormal":  # codes 0x00 to 0x07: below the smallest normal number, and zero
        codes[places] &= 0x87
        scales[places] *= 2.0**14
    elif name == "large":
        scales[places] *= LARGE
        weights[places] *= LARGE_WEIGHT
    elif name == "one_weight":
        chosen = weights[places]
        weights[places] = torch.where(chosen == chosen.amax(-1, keepdim=True), 0.5, 0.0)
    fp8.drop_nan(codes, dtype)


def _w1(draw: Draw, experts: int, inner: int, width: int, dtype: torch.dtype) -> Tensor:
    """Codes; three in four of an up row are those of its gate row, so that silu(gate) · up is mostly positive."""
    bits = draw.bits("w1", (experts, 2, inner, width), torch.uint8)
    for part in chunks(experts, 2 * inner * width, budget=PIECE):
        gate, up = bits[part, 0], bits[part, 1]
        up.copy_(torch.where((up & 0x41) != 0, gate, up))
        fp8.signed(bits[part], dtype)
    return bits.view(experts, 2 * inner, width).view(dtype)


def _w2(draw: Draw, experts: int, inner: int, width: int, dtype: torch.dtype) -> Tensor:
    """Codes; a quarter of a row, half of those in the lower four octaves, is of the other sign than the rest."""
    bits = draw.bits("w2", (experts, width, inner), torch.uint8)
    sign = draw.bits("sign", (width, 1), torch.uint8).bitwise_and_(0x80)
    for part in chunks(experts, inner * width, budget=PIECE):
        piece = bits[part]
        other = piece & ~(piece << 2)  # its highest bit is set where that of six magnitude bits is not
        piece.bitwise_and_(0x3F).bitwise_or_(other.bitwise_and_(0x80).bitwise_xor_(sign))
        fp8.signed(piece, dtype)
    return bits.view(dtype)


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
