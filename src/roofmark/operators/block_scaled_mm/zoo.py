"""Wrong and right answers of `block_scaled_mm`; see `roofmark.operators.zoo`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from roofmark.operators.fp8 import wide
from roofmark.operators.zoo import Candidate, fp8

BF16 = torch.bfloat16
Inputs = Mapping[str, Tensor]


def _spread(i: Inputs) -> tuple[Tensor, Tensor]:
    """Both scales, one for each row and block."""
    return i["a_scales"], i["b_scales"].repeat_interleave(128, 0)


def _blocks(x: Tensor) -> Tensor:
    """[rows, k] as float32 [rows, k / 128, 128]."""
    return wide(x).reshape(len(x), -1, 128)


def _matmul(i: Inputs, a_scales: Tensor, b_scales: Tensor, blocks: slice = slice(None)) -> Tensor:
    a = _blocks(i["a"]) * a_scales.unsqueeze(-1)
    b = _blocks(i["b"]) * b_scales.unsqueeze(-1)
    return torch.mm(a[:, blocks].flatten(1), b[:, blocks].flatten(1).T)


def _mm(i: Inputs, a: Tensor | None = None, b: Tensor | None = None, blocks: slice = slice(None)) -> Tensor:
    a_scales, b_scales = _spread(i)
    return _matmul(i, a_scales if a is None else a, b_scales if b is None else b, blocks).to(BF16)


def _by_block(i: Inputs, kind: torch.dtype) -> Tensor:
    """One product per block of 128, scaled and added up in `kind`."""
    a_scales, b_scales = _spread(i)
    total = torch.zeros(len(i["a"]), len(i["b"]), dtype=kind)
    for g in range(a_scales.shape[1]):
        part = slice(128 * g, 128 * g + 128)
        product = wide(i["a"][:, part]) @ wide(i["b"][:, part]).T
        total += (product * a_scales[:, g, None] * b_scales[:, g]).to(kind)
    return total.to(BF16)


def _scaled_in_fp8(i: Inputs, s: dict[str, Any]) -> Tensor:
    a, b = _spread(i)
    whole = _blocks(i["a"]) * a.unsqueeze(-1)
    return _matmul({**i, "a": fp8(whole.flatten(1))}, torch.ones_like(a), b).to(BF16)


ROWS = ("a", "a_scales")
WRONG: dict[str, Candidate] = {
    "no a's scales": lambda i, s: _mm(i, a=torch.ones_like(i["a_scales"])),
    "no b's scales": lambda i, s: _mm(i, b=torch.ones_like(_spread(i)[1])),
    "mean of a's scales": lambda i, s: _mm(i, a=i["a_scales"].mean().expand_as(i["a_scales"])),
    "mean of b's scales": lambda i, s: _mm(i, b=_spread(i)[1].mean().expand(s["n"], s["k"] // 128)),
    "a's first scale": lambda i, s: _mm(i, a=i["a_scales"][:, :1].expand_as(i["a_scales"])),
    "b's first row of scales": lambda i, s: _mm(i, b=i["b_scales"][:1].expand(s["n"], -1)),
    "b's scales transposed": lambda i, s: (
        _mm(i, b=i["b_scales"].T.repeat_interleave(128, 0)) if s["n"] == s["k"] else None
    ),
    "half of k": lambda i, s: _mm(i, blocks=slice(0, s["k"] // 256)),
    "last block left out": lambda i, s: _mm(i, blocks=slice(0, -1)),
    "b not transposed": lambda i, s: _mm({**i, "b": wide(i["b"]).T}) if s["n"] == s["k"] else None,
    "sizes alone": lambda i, s: _mm({**i, "a": wide(i["a"]).abs()}),
    "output in fp8": lambda i, s: fp8(_mm(i).float()).to(BF16),
    "sums in bf16": lambda i, s: _by_block(i, BF16),
    "scaled matrix in fp8": _scaled_in_fp8,
}
RIGHT: dict[str, Candidate] = {"block by block": lambda i, s: _by_block(i, torch.float32)}
WRONG_ON_CORNERS: dict[tuple[str, str], Candidate] = {}


def _kept(i: Inputs, keep: Tensor) -> Tensor | None:
    """The product with those elements of `a` where `keep` holds; None where that leaves out nothing."""
    a = wide(i["a"])
    return None if (keep | (a == 0)).all() else _mm({**i, "a": a * keep})


def _subnormal_codes_flushed(i: Inputs, s: dict[str, Any]) -> Tensor | None:
    return _kept(i, wide(i["a"]).abs() >= 2.0**-6)


def _ends_at_an_empty_block(i: Inputs, s: dict[str, Any]) -> Tensor | None:
    there = (_blocks(i["a"]) != 0).any(-1).cumprod(-1).bool()
    return _kept(i, there.repeat_interleave(128, 1))


def _largest_codes_left_out(i: Inputs, s: dict[str, Any]) -> Tensor | None:
    """Rows that are full of the largest code are taken for padding."""
    a = wide(i["a"]).abs()
    return _kept(i, (a < a.max()).any(-1, keepdim=True))


def _rows_scaled_by_their_largest(i: Inputs, s: dict[str, Any]) -> Tensor | None:
    """0 / 0 where a row is zero."""
    a = wide(i["a"])
    largest = a.abs().amax(-1, keepdim=True)
    return (_mm({**i, "a": a / largest}).float() * largest).to(BF16) if (largest == 0).any() else None


SPECIAL: dict[str, Candidate] = {
    "subnormal codes flushed": _subnormal_codes_flushed,
    "ends at an empty block": _ends_at_an_empty_block,
    "largest codes left out": _largest_codes_left_out,
    "rows scaled by their largest": _rows_scaled_by_their_largest,
}
