"""Wrong answers that must fail, and right ones by another way that must pass."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from roofmark.operators.zoo import Candidate

Inputs = Mapping[str, Tensor]
Sizes = dict[str, Any]
Pair = tuple[Tensor, Tensor]
BF16 = torch.bfloat16

ROWS = ("x", "residual")


def _sum(i: Inputs) -> Tensor:
    """The sum as stored, in float32."""
    return (i["x"] + i["residual"]).float()


def _mean_square(r: Tensor, part: slice = slice(None)) -> Tensor:
    return r[:, part].square().mean(-1, keepdim=True)


def _norm(i: Inputs, r: Tensor, mean_square: Tensor, eps: float, weight: Tensor | float | None = None) -> Pair:
    """r, normalised by a mean square of one's choice, and the right residual."""
    out = r * torch.rsqrt(mean_square + eps) * (i["weight"].float() if weight is None else weight)
    return out.to(BF16), _sum(i).to(BF16)


def _right(i: Inputs, s: Sizes) -> Pair:
    return _norm(i, _sum(i), _mean_square(_sum(i)), s["eps"])


def _of(i: Inputs, s: Sizes, r: Tensor) -> Pair:
    """The norm of something else than the sum."""
    return _norm(i, r, _mean_square(r), s["eps"])


def _square_of(i: Inputs, s: Sizes, r: Tensor) -> Pair:
    """The sum over the root mean square of something else."""
    return _norm(i, _sum(i), _mean_square(r), s["eps"])


def _part(i: Inputs, s: Sizes, count: int, share: float = 1.0) -> Pair:
    r = _sum(i)
    return _norm(i, r, _mean_square(r, slice(0, count)) * share, s["eps"])


def _layer_norm(i: Inputs, s: Sizes) -> Pair:
    r = _sum(i)
    return _of(i, s, r - r.mean(-1, keepdim=True))


def _each_alone(i: Inputs, s: Sizes) -> Pair:
    x, residual = (_of(i, s, i[name].float())[0] for name in ROWS)
    return x + residual, _right(i, s)[1]


def _fp8(x: Tensor) -> Tensor:
    return x.to(torch.float8_e4m3fn).float()


def _all_in_bf16(i: Inputs, s: Sizes) -> Pair:
    """The reciprocal root too is rounded to bfloat16."""
    total = i["x"] + i["residual"]
    inverse = torch.rsqrt(_mean_square(total.float()) + s["eps"]).to(BF16)
    return total * inverse * i["weight"], total


def _normed_in_fp8(i: Inputs, s: Sizes) -> Pair:
    r = _sum(i)
    normed = r * torch.rsqrt(_mean_square(r) + s["eps"])
    return (_fp8(normed) * i["weight"].float()).to(BF16), r.to(BF16)


def _sum_in_fp8(i: Inputs, s: Sizes) -> Pair:
    size = _sum(i).abs().amax(-1, keepdim=True).clamp(min=1e-30) / 448
    return _right(i, s)[0], (_fp8(_sum(i) / size) * size).to(BF16)


def _sum_cut_off(i: Inputs, s: Sizes) -> Pair:
    """The sum loses its low bits instead of being rounded."""
    exact = i["x"].float() + i["residual"].float()
    return _right(i, s)[0], (exact.view(torch.int32) & -65536).view(torch.float32).to(BF16)


WRONG: dict[str, Candidate] = {
    "x not added": lambda i, s: (_of(i, s, i["residual"].float())[0], i["residual"]),
    "residual not added": lambda i, s: (_of(i, s, i["x"].float())[0], i["x"]),
    "norm of x": lambda i, s: _of(i, s, i["x"].float()),
    "norm of the residual": lambda i, s: _of(i, s, i["residual"].float()),
    "root of x": lambda i, s: _square_of(i, s, i["x"].float()),
    "root of the residual": lambda i, s: _square_of(i, s, i["residual"].float()),
    "squares added": lambda i, s: _norm(
        i, _sum(i), _mean_square(i["x"].float()) + _mean_square(i["residual"].float()), s["eps"]
    ),
    "each normalised alone": _each_alone,
    "difference": lambda i, s: _of(i, s, i["residual"].float() - i["x"].float()),
    "residual not updated": lambda i, s: (_right(i, s)[0], i["residual"]),
    "x as the residual": lambda i, s: (_right(i, s)[0], i["x"]),
    "out as the residual": lambda i, s: (_right(i, s)[0], _right(i, s)[0]),
    "outputs swapped": lambda i, s: _right(i, s)[::-1],
    "residual times the weight": lambda i, s: (_right(i, s)[0], (_sum(i) * i["weight"].float()).to(BF16)),
    "weight alone": lambda i, s: (i["weight"].expand_as(i["x"]), _right(i, s)[1]),
    "no root": lambda i, s: _norm(i, _sum(i), torch.ones(()), 0.0),
    "no weight": lambda i, s: _norm(i, _sum(i), _mean_square(_sum(i)), s["eps"], 1.0),
    "weight + 1": lambda i, s: _norm(i, _sum(i), _mean_square(_sum(i)), s["eps"], i["weight"].float() + 1),
    "no eps": lambda i, s: _norm(i, _sum(i), _mean_square(_sum(i)) + 1e-30, 0.0),
    "eps outside the root": lambda i, s: _norm(i, _sum(i), (_mean_square(_sum(i)).sqrt() + s["eps"]).square(), 0.0),
    "mean over the batch": lambda i, s: _norm(i, _sum(i), _mean_square(_sum(i)).mean(), s["eps"]),
    "expected mean": lambda i, s: _norm(i, _sum(i), torch.tensor(1.0), s["eps"]),
    "half of the row": lambda i, s: _part(i, s, s["hidden_size"] // 2),
    "last sixteenth left out": lambda i, s: _part(i, s, s["hidden_size"] * 15 // 16, 15 / 16),
    "sum for mean": lambda i, s: _part(i, s, s["hidden_size"], float(s["hidden_size"])),
    "mean of sizes": lambda i, s: _norm(i, _sum(i), _sum(i).abs().mean(-1, keepdim=True).square(), s["eps"]),
    "layer norm": _layer_norm,
    "all in bf16": _all_in_bf16,
    "normed in fp8": _normed_in_fp8,
    "sum in fp8": _sum_in_fp8,
    "sum cut off": _sum_cut_off,
}


def _unrounded(i: Inputs, s: Sizes) -> Pair:
    return _of(i, s, i["x"].float() + i["residual"].float())


def _root_unrounded(i: Inputs, s: Sizes) -> Pair:
    return _square_of(i, s, i["x"].float() + i["residual"].float())


def _rounds_before_the_weight(i: Inputs, s: Sizes) -> Pair:
    r = _sum(i)
    return (r / (_mean_square(r) + s["eps"]).sqrt()).to(BF16) * i["weight"], r.to(BF16)


def _sums_parts(i: Inputs, s: Sizes) -> Pair:
    r = _sum(i)
    parts = [p.square().sum(-1, keepdim=True) for p in r.chunk(11, dim=-1)]
    return _norm(i, r, torch.stack(parts).flip(0).sum(0) * (1 / s["hidden_size"]), s["eps"])


def _in_float64(i: Inputs, s: Sizes) -> Pair:
    r = i["x"].double() + i["residual"].double()
    return (r / (_mean_square(r) + s["eps"]).sqrt() * i["weight"].double()).to(BF16), r.to(BF16)


RIGHT: dict[str, Candidate] = {
    "norm of the unrounded sum": _unrounded,
    "root of the unrounded sum": _root_unrounded,
    "rounds before the weight": _rounds_before_the_weight,
    "sums parts": _sums_parts,
    "in float64": _in_float64,
}


def _in_fp16(i: Inputs, s: Sizes) -> Pair:
    r = (i["x"].half() + i["residual"].half()).float()
    return _norm(i, r, _mean_square(r), s["eps"])[0], r.to(BF16)


WRONG_ON_CORNERS: dict[tuple[str, str], Candidate] = {
    ("zero_rows", "nothing under the root"): lambda i, s: _norm(i, _sum(i), _mean_square(_sum(i)), 0.0),
    ("cancelled", "nothing under the root"): lambda i, s: _norm(i, _sum(i), _mean_square(_sum(i)), 0.0),
    ("large", "sum in fp16"): _in_fp16,
    ("one_element", "last column left out"): lambda i, s: _part(i, s, s["hidden_size"] - 1),
    ("below_eps", "eps left out of the root"): lambda i, s: _norm(i, _sum(i), _mean_square(_sum(i)), 0.0),
}


def _scaled_by_the_largest(i: Inputs, s: Sizes) -> Pair | None:
    """0 / 0 where a sum is zero."""
    largest = _sum(i).abs().amax(-1, keepdim=True)
    r = _sum(i) / largest
    out = r * torch.rsqrt(_mean_square(r) + s["eps"] / largest.square()) * i["weight"].float()
    return (out.to(BF16), _sum(i).to(BF16)) if (largest == 0).any() else None


def _squares_in_fp16(i: Inputs, s: Sizes) -> Pair | None:
    r = _sum(i)
    return _of(i, s, r.clamp(-65504, 65504)) if (r.abs() > 65504).any() else None


def _tiny_taken_for_zero(i: Inputs, s: Sizes) -> Pair | None:
    r = _sum(i)
    tiny = (_mean_square(r) < s["eps"] / 16) & (r != 0)
    return _of(i, s, r.masked_fill(tiny, 0.0)) if tiny.any() else None


def _empty_by_its_first(i: Inputs, s: Sizes) -> Pair | None:
    """A row whose first sums are zero is taken for zero."""
    r = _sum(i)
    empty = (r[:, :4] == 0).all(-1) & (r != 0).any(-1)
    return _of(i, s, r.masked_fill(empty.unsqueeze(-1), 0.0)) if empty.any() else None


SPECIAL: dict[str, Candidate] = {
    "scaled by the largest": _scaled_by_the_largest,
    "squares in fp16": _squares_in_fp16,
    "tiny taken for zero": _tiny_taken_for_zero,
    "empty by its first values": _empty_by_its_first,
}
