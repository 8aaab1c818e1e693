"""Wrong answers that must fail, and right ones by another way that must pass."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from roofmark.operators.zoo import Candidate

Inputs = Mapping[str, Tensor]
Sizes = dict[str, Any]
BF16 = torch.bfloat16
EPS = 1e-6

ROWS = ("x",)


def _squares(i: Inputs, part: slice = slice(None)) -> Tensor:
    return i["x"][:, part].float().square().sum(-1, keepdim=True)


def _by(i: Inputs, squares: Tensor, eps: float = EPS) -> Tensor:
    """Divided by the root of a sum of one's choice."""
    return (i["x"].float() * torch.rsqrt(squares + eps)).to(BF16)


def _over_batch(i: Inputs, s: Sizes) -> Tensor | None:
    """One length for all rows."""
    return _by(i, _squares(i).mean()) if len(i["x"]) > 1 else None


def _of_the_row_before(i: Inputs, s: Sizes) -> Tensor | None:
    return _by(i, _squares(i).roll(1, 0)) if len(i["x"]) > 1 else None


def _largest_to_one(i: Inputs, s: Sizes) -> Tensor:
    x = i["x"].float()
    return (x / x.abs().amax(-1, keepdim=True).clamp(min=EPS)).to(BF16)


def _centred(i: Inputs, s: Sizes) -> Tensor:
    """The mean of a row is next to nothing, but not of its absolute values."""
    x = i["x"].float()
    return (x * torch.rsqrt((x.abs() - x.abs().mean(-1, keepdim=True)).square().sum(-1, keepdim=True) + EPS)).to(BF16)


def _rounded_between(i: Inputs, s: Sizes) -> Tensor:
    """x over its largest is stored in bfloat16 first."""
    largest = i["x"].float().abs().amax(-1, keepdim=True).clamp(min=1e-30)
    small = (i["x"].float() / largest).to(BF16).float()
    return (small * torch.rsqrt(small.square().sum(-1, keepdim=True) + EPS / largest.square())).to(BF16)


def _in_fp8(i: Inputs, s: Sizes) -> Tensor:
    y = _by(i, _squares(i)).float()
    return ((y * 256).to(torch.float8_e4m3fn).float() / 256).to(BF16)


def _sum_in_bf16(i: Inputs, s: Sizes) -> Tensor:
    """One square after the other, in bfloat16."""
    total = torch.zeros_like(i["x"][:, :1])
    for square in i["x"].square().chunk(s["hidden_size"], dim=-1):
        total += square
    return _by(i, total.float())


def _cut_off(i: Inputs, s: Sizes) -> Tensor:
    """The answer loses its low bits instead of being rounded."""
    y = i["x"].float() * torch.rsqrt(_squares(i) + EPS)
    return (y.view(torch.int32) & -65536).view(torch.float32).to(BF16)


WRONG: dict[str, Candidate] = {
    "length of 1": lambda i, s: _by(i, torch.ones(())),
    "expected length": lambda i, s: _by(i, torch.tensor(16.0)),
    "length of a row of unit size": lambda i, s: _by(i, torch.tensor(float(s["hidden_size"]))),
    "one length for all": _over_batch,
    "length of the row before": _of_the_row_before,
    "no eps": lambda i, s: _by(i, _squares(i) + 1e-30, 0.0),
    "eps outside the root": lambda i, s: _by(i, (_squares(i).sqrt() + EPS).square(), 0.0),
    "eps of 1e-5": lambda i, s: _by(i, _squares(i), 1e-5),
    "larger of length and root of eps": lambda i, s: _by(i, _squares(i).clamp(min=EPS), 0.0),
    "mean for sum": lambda i, s: _by(i, _squares(i) / s["hidden_size"]),
    "half of the row": lambda i, s: _by(i, _squares(i, slice(0, s["hidden_size"] // 2))),
    "twice the half of the row": lambda i, s: _by(i, 2 * _squares(i, slice(0, s["hidden_size"] // 2))),
    "last sixteenth left out": lambda i, s: _by(i, _squares(i, slice(0, s["hidden_size"] * 15 // 16))),
    "sum of sizes": lambda i, s: _by(i, i["x"].float().abs().sum(-1, keepdim=True).square()),
    "no root": lambda i, s: (i["x"].float() / (_squares(i) + EPS)).to(BF16),
    "largest to one": _largest_to_one,
    "centred": _centred,
    "rounded between": _rounded_between,
    "sum in bf16": _sum_in_bf16,
    "output in fp8": _in_fp8,
    "cut off": _cut_off,
}


def _divides(i: Inputs, s: Sizes) -> Tensor:
    return (i["x"].float() / (_squares(i) + EPS).sqrt()).to(BF16)


def _sums_parts(i: Inputs, s: Sizes) -> Tensor:
    parts = [p.float().square().sum(-1, keepdim=True) for p in i["x"].chunk(21, dim=-1)]
    return _by(i, torch.stack(parts).flip(0).sum(0))


def _in_float64(i: Inputs, s: Sizes) -> Tensor:
    x = i["x"].double()
    return (x / (x.square().sum(-1, keepdim=True) + EPS).sqrt()).to(BF16)


RIGHT: dict[str, Candidate] = {"divides": _divides, "sums parts": _sums_parts, "in float64": _in_float64}

WRONG_ON_CORNERS: dict[tuple[str, str], Candidate] = {
    ("zero_rows", "nothing under the root"): lambda i, s: _by(i, _squares(i), 0.0),
    ("large", "squares in fp16"): lambda i, s: _by(i, i["x"].half().float().square().sum(-1, keepdim=True)),
    ("below_eps", "eps left out of the root"): lambda i, s: _by(i, _squares(i), 0.0),
    ("one_element", "last column left out"): lambda i, s: _by(i, _squares(i, slice(0, s["hidden_size"] - 1))),
    ("even", "largest to one"): _largest_to_one,
}


def _scaled_by_the_largest(i: Inputs, s: Sizes) -> Tensor | None:
    """0 / 0 where a row is zero."""
    largest = i["x"].float().abs().amax(-1, keepdim=True)
    x = i["x"].float() / largest
    y = x * torch.rsqrt(x.square().sum(-1, keepdim=True) + EPS / largest.square())
    return y.to(BF16) if (largest == 0).any() else None


def _of(x: Tensor) -> Tensor:
    return (x * torch.rsqrt(x.square().sum(-1, keepdim=True) + EPS)).to(BF16)


def _squares_in_fp16(i: Inputs, s: Sizes) -> Tensor | None:
    x = i["x"].float()
    return _of(x.clamp(-65504, 65504)) if (x.abs() > 65504).any() else None


def _tiny_taken_for_zero(i: Inputs, s: Sizes) -> Tensor | None:
    x = i["x"].float()
    tiny = (_squares(i) < EPS / 16) & (x != 0)
    return _of(x.masked_fill(tiny, 0.0)) if tiny.any() else None


def _empty_by_its_first(i: Inputs, s: Sizes) -> Tensor | None:
    """A row whose first values are zero is taken for zero."""
    x = i["x"].float()
    empty = (x[:, :4] == 0).all(-1) & (x != 0).any(-1)
    return _of(x.masked_fill(empty.unsqueeze(-1), 0.0)) if empty.any() else None


def _unit_by_its_signs(i: Inputs, s: Sizes) -> Tensor | None:
    """A row of one size is taken to be of size 1 already."""
    size = i["x"].float().abs()
    even = (size == size[:, :1]).all(-1, keepdim=True) & (size > 0).all(-1, keepdim=True)
    return torch.where(even, i["x"].float(), _by(i, _squares(i)).float()).to(BF16) if even.any() else None


SPECIAL: dict[str, Candidate] = {
    "scaled by the largest": _scaled_by_the_largest,
    "squares in fp16": _squares_in_fp16,
    "tiny taken for zero": _tiny_taken_for_zero,
    "empty by its first values": _empty_by_its_first,
    "even rows left alone": _unit_by_its_signs,
}
