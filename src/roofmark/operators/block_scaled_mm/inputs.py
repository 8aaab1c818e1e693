"""Inputs of `block_scaled_mm`: fp8 codes over eight octaves up to the largest, uneven scales.

Some rows of `a` are special in every call: zeros, the largest codes, subnormal ones, values in one block alone.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from roofmark.operators.draw import Draw
from roofmark.records import OutputSpec

# Root mean square of the codes that `_codes` draws, 140.9, times that of their scales' spread, 1.376.
SCALED_RMS = 194.0
SPECIAL = ("zeros", "largest", "subnormal", "one_block")
CORNER_ROWS = {"one_row": 1, "zeros": 3, "largest": 3, "subnormal": 3, "one_block": 5, "tail": 37}


def outputs(*, m: int, n: int, k: int, group_n: int, group_k: int) -> tuple[OutputSpec, ...]:
    return (OutputSpec(name="out", shape=(m, n), dtype="bfloat16"),)


def make_inputs(*, m: int, n: int, k: int, group_n: int, group_k: int, seed: int, device: str) -> dict[str, Tensor]:
    """`a` [m, k], `b` [n, k] fp8 e4m3 (fn), and their scales, which spread over a factor of 8.

    The scales bring the outputs to a standard deviation of about one. One row of `a` in eight is special.
    """
    draw = Draw(seed, device)
    return _make(draw, draw.kinds("kind", m, len(SPECIAL)), n, k, group_n, group_k)


def _make(draw: Draw, kind: Tensor, n: int, k: int, group_n: int, group_k: int) -> dict[str, Tensor]:
    """The inputs where the rows of `a` are of these kinds."""
    m = len(kind)
    size = 1 / (SCALED_RMS * k**0.25)
    a_scales = torch.exp2(draw.between("a_scales", (m, k // group_k), -1.5, 1.5)).mul_(size)
    b_scales = torch.exp2(draw.between("b_scales", (n // group_n, k // group_k), -1.5, 1.5)).mul_(size)
    a = _codes(draw, "a", m, k)
    for number, name in enumerate(SPECIAL):
        places = (kind == number).nonzero().flatten()
        _make_special(draw, name, places, a.view(torch.uint8).view(m, -1, group_k), a_scales)
    return {"a": a, "b": _codes(draw, "b", n, k), "a_scales": a_scales, "b_scales": b_scales}


def _make_special(draw: Draw, name: str, places: Tensor, codes: Tensor, scales: Tensor) -> None:
    """Changes the rows `places` of `codes` [m, k / 128, 128] and `scales` [m, k / 128]."""
    if name == "zeros":
        codes[places] &= 0x80
    elif name == "largest":
        codes[places] = codes[places] & 0x80 | 0x7E
    elif name == "subnormal":  # codes 0x00 to 0x07: below 2**-6 and zero
        codes[places] &= 0x87
        scales[places] *= 2.0**14
    elif name == "one_block":
        kept = draw.bits("block", (len(places),), torch.int64) % codes.shape[1]
        block = codes[places, kept]
        codes[places] = 0
        codes[places, kept] = block


def _codes(draw: Draw, name: str, rows: int, columns: int) -> Tensor:
    """Signed codes 0x3f (1.875) to 0x7e (448), each equally likely."""
    return draw.bits(name, (rows, columns), torch.uint8).bitwise_and_(0xBF).add_(0x3F).view(torch.float8_e4m3fn)


def corners(*, m: int, n: int, k: int, group_n: int, group_k: int) -> dict[str, dict[str, Any]]:
    """The corner cases, each with few rows of `a`."""
    fixed = {"n": n, "k": k, "group_n": group_n, "group_k": group_k}
    return {name: {"m": rows, **fixed} for name, rows in CORNER_ROWS.items()}


def make_corner(
    name: str, *, m: int, n: int, k: int, group_n: int, group_k: int, seed: int, device: str
) -> dict[str, Tensor]:
    draw = Draw(seed, device)
    return _make(draw, draw.corner_kinds(name, m, SPECIAL), n, k, group_n, group_k)
