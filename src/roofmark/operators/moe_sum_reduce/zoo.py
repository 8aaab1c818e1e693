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

ROWS = ("x",)


def _factor(s: Sizes) -> float:
    return float(s["routed_scaling_factor"])


def _wide(i: Inputs, s: Sizes, part: slice = slice(None)) -> Tensor:
    return i["x"][:, part].float().sum(1) * _factor(s)


def _sum(i: Inputs, s: Sizes, part: slice = slice(None)) -> Tensor:
    """The right answer over some of the experts."""
    return _wide(i, s, part).to(BF16)


def _scaled(i: Inputs, s: Sizes, factor: float) -> Tensor | None:
    """By another factor; None where it is the right one."""
    return None if factor == _factor(s) else (i["x"].float().sum(1) * factor).to(BF16)


def _one_by_one(x: Tensor, s: Sizes) -> Tensor:
    """Added up in the type of x."""
    total = torch.zeros_like(x[:, 0])
    for j in range(x.shape[1]):
        total += x[:, j]
    return (total.float() * _factor(s)).to(BF16)


def _halves_in_bf16(i: Inputs, s: Sizes) -> Tensor:
    """Two halves, each stored before they meet."""
    half = s["top_k"] // 2
    return (_sum(i, s, slice(0, half)).float() + _sum(i, s, slice(half, None)).float()).to(BF16)


def _by_largest(i: Inputs, s: Sizes) -> Tensor:
    x = i["x"]
    place = x.abs().argmax(1, keepdim=True)
    return (x.gather(1, place).squeeze(1).float() * _factor(s)).to(BF16)


def _tokens_for_experts(i: Inputs, s: Sizes) -> Tensor:
    """As if experts came first: slices of one token's neighbours."""
    tokens, top_k, hidden = i["x"].shape
    return _sum({"x": i["x"].reshape(top_k, tokens, hidden).transpose(0, 1)}, s)


def _columns_for_experts(i: Inputs, s: Sizes) -> Tensor:
    """As if experts came last."""
    tokens, top_k, hidden = i["x"].shape
    return _sum({"x": i["x"].reshape(tokens, hidden, top_k).transpose(1, 2)}, s)


def _last_tile(i: Inputs, s: Sizes) -> Tensor:
    """The last expert is left out in the last 64 columns."""
    x = i["x"].clone()
    x[:, -1, -64:] = 0
    return _sum({"x": x}, s)


def _one_in_fp8(i: Inputs, s: Sizes) -> Tensor:
    x = i["x"].float()
    x[:, 0] = x[:, 0].to(torch.float8_e4m3fn).float()
    return _sum({"x": x}, s)


def _cut_off(i: Inputs, s: Sizes) -> Tensor:
    """The answer loses its low bits instead of being rounded."""
    return (_wide(i, s).view(torch.int32) & -65536).view(torch.float32).to(BF16)


WRONG: dict[str, Candidate] = {
    "first expert": lambda i, s: _sum(i, s, slice(0, 1)),
    "first expert times k": lambda i, s: _sum({"x": i["x"][:, :1].expand_as(i["x"])}, s),
    "largest": _by_largest,
    "first left out": lambda i, s: _sum(i, s, slice(1, None)),
    "last left out": lambda i, s: _sum(i, s, slice(0, -1)),
    "last counted twice": lambda i, s: _sum({"x": torch.cat([i["x"], i["x"][:, -1:]], 1)}, s),
    "last left out in the last columns": _last_tile,
    "first half": lambda i, s: _sum(i, s, slice(0, s["top_k"] // 2)),
    "twice the first half": lambda i, s: (2 * _wide(i, s, slice(0, s["top_k"] // 2))).to(BF16),
    "mean": lambda i, s: (_wide(i, s) / s["top_k"]).to(BF16),
    "sizes": lambda i, s: _sum({"x": i["x"].abs()}, s),
    "mean of the tokens": lambda i, s: _wide(i, s).mean(0, keepdim=True).expand(len(i["x"]), -1).to(BF16),
    "factor of 2.5": lambda i, s: _scaled(i, s, 2.5),
    "tokens taken for experts": _tokens_for_experts,
    "columns taken for experts": _columns_for_experts,
    "sums in bf16": lambda i, s: _one_by_one(i["x"], s),
    "halves in bf16": _halves_in_bf16,
    "one expert in fp8": _one_in_fp8,
    "output in fp8": lambda i, s: _wide(i, s).to(torch.float8_e4m3fn).to(BF16),
    "cut off": _cut_off,
}


def _pairs(i: Inputs, s: Sizes) -> Tensor:
    left = [i["x"][:, j].float() for j in range(s["top_k"])]
    while len(left) > 1:
        left = [sum(left[j : j + 2], torch.zeros_like(left[j])) for j in range(0, len(left), 2)]
    return (left[0] * _factor(s)).to(BF16)


def _factor_first(i: Inputs, s: Sizes) -> Tensor:
    return (i["x"].float() * _factor(s)).flip(1).sum(1).to(BF16)


def _in_float64(i: Inputs, s: Sizes) -> Tensor:
    return (i["x"].double().sum(1) * _factor(s)).to(BF16)


RIGHT: dict[str, Candidate] = {
    "one by one": lambda i, s: _one_by_one(i["x"].float(), s),
    "from the last": lambda i, s: _one_by_one(i["x"].float().flip(1), s),
    "pairs": _pairs,
    "factor first": _factor_first,
    "in float64": _in_float64,
}

WRONG_ON_CORNERS: dict[tuple[str, str], Candidate] = {
    ("swallowed", "sums in bf16"): lambda i, s: _one_by_one(i["x"], s),
    ("cancelled", "first left out"): lambda i, s: _sum(i, s, slice(1, None)),
    ("one_expert", "mean of those there"): lambda i, s: (_wide(i, s) / 2).to(BF16),
    ("missing_experts", "zeros replaced by the mean"): lambda i, s: _sum(
        {"x": torch.where(i["x"] == 0, i["x"].float().mean(1, keepdim=True), i["x"].float())}, s
    ),
    ("large", "sums in fp16"): lambda i, s: _one_by_one(i["x"].half(), s),
    ("small", "sums in fp16"): lambda i, s: _one_by_one(i["x"].half(), s),
}


def _empty(i: Inputs) -> Tensor:
    """Which experts of which tokens are zero all over, [T, k]."""
    return (i["x"] == 0).all(-1)


def _ends_at_an_empty_expert(i: Inputs, s: Sizes) -> Tensor | None:
    before = _empty(i).long().cumsum(1) == 0
    return _sum({"x": i["x"] * before.unsqueeze(-1)}, s) if _empty(i).any() else None


def _skipped_by_the_first(i: Inputs, s: Sizes) -> Tensor | None:
    """A token whose first expert is zero gives 0."""
    skipped = _empty(i)[:, :1]
    return _wide(i, s).masked_fill(skipped, 0.0).to(BF16) if skipped.any() else None


def _cut_at_the_largest_fp16(i: Inputs, s: Sizes) -> Tensor | None:
    large = (i["x"].abs() > 65504).any()
    return _sum({"x": i["x"].float().clamp(-65504, 65504)}, s) if large else None


def _small_beside_large_dropped(i: Inputs, s: Sizes) -> Tensor | None:
    """What is less than a hundredth of the largest expert is left out, where that one is cancelled."""
    x = i["x"].float()
    cancelled = (x[:, :1] == -x[:, -1:]).all(-1, keepdim=True) & (x != 0)
    small = cancelled & (x.abs() < x.abs().amax(1, keepdim=True) / 100)
    return _sum({"x": x.masked_fill(small, 0.0)}, s) if small.any() else None


SPECIAL: dict[str, Candidate] = {
    "ends at an empty expert": _ends_at_an_empty_expert,
    "skipped by the first expert": _skipped_by_the_first,
    "cut at the largest fp16": _cut_at_the_largest_fp16,
    "small beside large dropped": _small_beside_large_dropped,
}
