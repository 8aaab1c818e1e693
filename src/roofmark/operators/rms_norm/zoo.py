"""Wrong and right answers of `rms_norm`; see `roofmark.operators.zoo`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from roofmark.operators.zoo import Candidate, fp8, significant

BF16 = torch.bfloat16
Inputs = Mapping[str, Tensor]


def _rms(i: Inputs, mean_square: Tensor, eps: float, weight: Tensor | float | None = None) -> Tensor:
    scale = torch.rsqrt(mean_square + eps)
    return (i["x"].float() * scale * (i["weight"].float() if weight is None else weight)).to(BF16)


def _mean_square(i: Inputs, part: slice = slice(None)) -> Tensor:
    return i["x"][:, part].float().square().mean(-1, keepdim=True)


def _normed_to_7_bits(i: Inputs, s: dict[str, Any]) -> Tensor:
    """One bit less than bfloat16 before the weight, so that some values are off on every row."""
    normed = i["x"].float() * torch.rsqrt(_mean_square(i) + s["eps"])
    return (significant(normed, 7) * i["weight"].float()).to(BF16)


def _layer_norm(i: Inputs, s: dict[str, Any]) -> Tensor:
    x = i["x"].float()
    x = x - x.mean(-1, keepdim=True)
    return (x * torch.rsqrt(x.square().mean(-1, keepdim=True) + s["eps"]) * i["weight"].float()).to(BF16)


def _all_in_bf16(i: Inputs, s: dict[str, Any]) -> Tensor | None:
    """None on one row: the roundings of its mean square and root may be next to nothing, and then it is right."""
    if len(i["x"]) == 1:
        return None
    scale = torch.rsqrt(_mean_square(i).to(BF16) + s["eps"])
    return i["x"] * scale * i["weight"]


ROWS = ("x",)
WRONG: dict[str, Candidate] = {
    "weight alone": lambda i, s: i["weight"].expand_as(i["x"]),
    "no root": lambda i, s: _rms(i, torch.ones(1), 0.0),
    "no weight": lambda i, s: _rms(i, _mean_square(i), s["eps"], 1.0),
    "weight + 1": lambda i, s: _rms(i, _mean_square(i), s["eps"], i["weight"].float() + 1),
    "no eps": lambda i, s: _rms(i, _mean_square(i) + 1e-30, 0.0),
    "eps outside the root": lambda i, s: _rms(i, (_mean_square(i).sqrt() + s["eps"]).square(), 0.0),
    "mean over the batch": lambda i, s: _rms(i, _mean_square(i).mean(), s["eps"]),
    "expected mean": lambda i, s: _rms(i, torch.tensor(1.0), s["eps"]),
    "half of the row": lambda i, s: _rms(i, _mean_square(i, slice(0, s["hidden_size"] // 2)), s["eps"]),
    "last sixteenth left out": lambda i, s: _rms(
        i, _mean_square(i, slice(0, s["hidden_size"] * 15 // 16)) * 15 / 16, s["eps"]
    ),
    "sum for mean": lambda i, s: _rms(i, _mean_square(i) * s["hidden_size"], s["eps"]),
    "mean of sizes": lambda i, s: _rms(i, i["x"].float().abs().mean(-1, keepdim=True).square(), s["eps"]),
    "layer norm": _layer_norm,
    "x in fp8": lambda i, s: _rms({**i, "x": fp8(i["x"].float() * 64) / 64}, _mean_square(i), s["eps"]),
    "normed to 7 bits": _normed_to_7_bits,
    "all in bf16": _all_in_bf16,
}


def _rounded(i: Inputs, s: dict[str, Any]) -> Tensor:
    normed = i["x"].float() / (_mean_square(i) + s["eps"]).sqrt()
    return torch.mul(normed.to(BF16), i["weight"])


def _in_parts(i: Inputs, s: dict[str, Any]) -> Tensor:
    parts = [p.float().square().sum(-1, keepdim=True) for p in torch.split(i["x"], 96, dim=-1)]
    return _rms(i, torch.stack(parts).flip(0).sum(0) * (1 / s["hidden_size"]), s["eps"])


RIGHT: dict[str, Candidate] = {"rounds before the weight": _rounded, "sums parts": _in_parts}
WRONG_ON_CORNERS: dict[tuple[str, str], Candidate] = {}


def _normed(x: Tensor, i: Inputs, s: dict[str, Any]) -> Tensor:
    return (x * torch.rsqrt(x.square().mean(-1, keepdim=True) + s["eps"]) * i["weight"].float()).to(BF16)


def _scaled_by_the_largest(i: Inputs, s: dict[str, Any]) -> Tensor | None:
    """0 / 0 where a row is zero."""
    x = i["x"].float()
    largest = x.abs().amax(-1, keepdim=True)
    x = x / largest
    scale = torch.rsqrt(x.square().mean(-1, keepdim=True) + s["eps"] / largest.square())
    return (x * scale * i["weight"].float()).to(BF16) if (largest == 0).any() else None


def _squares_in_fp16(i: Inputs, s: dict[str, Any]) -> Tensor | None:
    x = i["x"].float()
    return _normed(x.clamp(-65504, 65504), i, s) if (x.abs() > 65504).any() else None


def _tiny_taken_for_zero(i: Inputs, s: dict[str, Any]) -> Tensor | None:
    x = i["x"].float()
    tiny = (x.square().mean(-1, keepdim=True) < s["eps"] / 16) & (x != 0)
    return _normed(x.masked_fill(tiny, 0.0), i, s) if tiny.any() else None


def _empty_by_its_first(i: Inputs, s: dict[str, Any]) -> Tensor | None:
    """A row whose first values are zero is taken for zero."""
    x = i["x"].float()
    empty = (x[:, :4] == 0).all(-1) & (x != 0).any(-1)
    return _normed(x.masked_fill(empty.unsqueeze(-1), 0.0), i, s) if empty.any() else None


SPECIAL: dict[str, Candidate] = {
    "scaled by the largest": _scaled_by_the_largest,
    "squares in fp16": _squares_in_fp16,
    "tiny taken for zero": _tiny_taken_for_zero,
    "empty by its first values": _empty_by_its_first,
}
