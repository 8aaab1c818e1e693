"""Inputs of `block_scaled_mm`: fp8 codes over eight octaves up to the largest, uneven scales.

Some rows of `a` are special in every call: zeros, the largest codes, subnormal ones, values in one block alone.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from roofmark.operators import fp8
from roofmark.operators.draw import Draw
from roofmark.records import OutputSpec

# Root mean square of two to the power of what spreads evenly over -1.5 to 1.5.
SPREAD_RMS = 1.376
SPECIAL = ("zeros", "largest", "subnormal", "one_block")
CORNER_ROWS = {"one_row": 1, "zeros": 3, "largest": 3, "subnormal": 3, "one_block": 5, "tail": 37}


def outputs(*, m: int, n: int, k: int, group_n: int, group_k: int) -> tuple[OutputSpec, ...]:
    return (OutputSpec(name="out", shape=(m, n), dtype="bfloat16"),)


def make_inputs(*, m: int, n: int, k: int, group_n: int, group_k: int, seed: int, device: str) -> dict[str, Tensor]:
    """`a` [m, k], `b` [n, k] in the device's own fp8 e4m3, and their scales, which spread over a factor of 8.

    The scales bring the outputs to a standard deviation of about one. One row of `a` in eight is special.
    """
    draw = Draw(seed, device)
    return _make(draw, draw.kinds("kind", m, len(SPECIAL)), n, k, group_n, group_k)


def _make(draw: Draw, kind: Tensor, n: int, k: int, group_n: int, group_k: int) -> dict[str, Tensor]:
    """The inputs where the rows of `a` are of these kinds."""
    m, dtype = len(kind), fp8.kind(draw.device)
    size = 1 / (fp8.codes_rms(dtype) * SPREAD_RMS * k**0.25)
    a_scales = torch.exp2(draw.between("a_scales", (m, k // group_k), -1.5, 1.5)).mul_(size)
    b_scales = torch.exp2(draw.between("b_scales", (n // group_n, k // group_k), -1.5, 1.5)).mul_(size)
    a = fp8.codes(draw, "a", (m, k), dtype)
    bits = a.view(torch.uint8).view(m, -1, group_k)
    for number, name in enumerate(SPECIAL):
        places = (kind == number).nonzero().flatten()
        _make_special(draw, name, places, bits, a_scales, fp8.largest_code(dtype))
    fp8.drop_nan(bits, dtype)
    return {"a": a, "b": fp8.codes(draw, "b", (n, k), dtype), "a_scales": a_scales, "b_scales": b_scales}


def _make_special(draw: Draw, name: str, places: Tensor, codes: Tensor, scales: Tensor, largest: int) -> None:
    """Changes the rows `places` of `codes` [m, k / 128, 128] and `scales` [m, k / 128]."""
    if name == "zeros":
        codes[places] &= 0x80
    elif name == "largest":
        codes[places] = codes[places] & 0x80 | largest
    elif name == "subnormal":  # codes 0x00 to 0x07: below the smallest normal number, and zero
        codes[places] &= 0x87
        scales[places] *= 2.0**14
    elif name == "one_block":
        kept = draw.bits("block", (len(places),), torch.int64) % codes.shape[1]
        block = codes[places, kept]
        codes[places] = 0
        codes[places, kept] = block


def corners(*, m: int, n: int, k: int, group_n: int, group_k: int) -> dict[str, dict[str, Any]]:
    """The corner cases, each with few rows of `a`."""
    fixed = {"n": n, "k": k, "group_n": group_n, "group_k": group_k}
    return {name: {"m": rows, **fixed} for name, rows in CORNER_ROWS.items()}


def make_corner(
    name: str, *, m: int, n: int, k: int, group_n: int, group_k: int, seed: int, device: str
) -> dict[str, Tensor]:
    draw = Draw(seed, device)
    return _make(draw, draw.corner_kinds(name, m, SPECIAL), n, k, group_n, group_k)
