"""Wrong answers that must fail, and right ones by another way that must pass."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import gelu, silu

from roofmark.operators.zoo import Candidate

Inputs = Mapping[str, Tensor]
Sizes = dict[str, Any]
BF16 = torch.bfloat16

ROWS = ("x", "z")


def _mean_square(i: Inputs, part: slice = slice(None)) -> Tensor:
    return i["x"][:, part].float().square().mean(-1, keepdim=True)


def _normed(i: Inputs, mean_square: Tensor, eps: float) -> Tensor:
    return i["x"].float() * torch.rsqrt(mean_square + eps)


def _right(i: Inputs, s: Sizes) -> Tensor:
    """The right answer in float32."""
    return _normed(i, _mean_square(i), s["eps"]) * i["weight"].float() * silu(i["z"].float())


def _by(i: Inputs, mean_square: Tensor, eps: float) -> Tensor:
    """Normalised by a mean square of one's choice."""
    return (_normed(i, mean_square, eps) * i["weight"].float() * silu(i["z"].float())).to(BF16)


def _gate(i: Inputs, s: Sizes, gate: Callable[[Tensor], Tensor]) -> Tensor:
    return (_normed(i, _mean_square(i), s["eps"]) * i["weight"].float() * gate(i["z"].float())).to(BF16)


def _weighed(i: Inputs, s: Sizes, weight: Tensor | float) -> Tensor:
    return (_normed(i, _mean_square(i), s["eps"]) * weight * silu(i["z"].float())).to(BF16)


def _gate_first(i: Inputs, s: Sizes) -> Tensor:
    gated = i["x"].float() * silu(i["z"].float())
    inverse = torch.rsqrt(gated.square().mean(-1, keepdim=True) + s["eps"])
    return (gated * inverse * i["weight"].float()).to(BF16)


def _layer_norm(i: Inputs, s: Sizes) -> Tensor:
    x = i["x"].float()
    moved = {**i, "x": x - x.mean(-1, keepdim=True)}
    return _right(moved, s).to(BF16)


def _two_rows_at_once(i: Inputs, s: Sizes) -> Tensor:
    """One root for every two rows."""
    mean_square = _mean_square(i)
    return _by(i, (mean_square + mean_square.roll(1, 0)) / 2, s["eps"])


def _normed_in_fp8(i: Inputs, s: Sizes) -> Tensor:
    normed = _normed(i, _mean_square(i), s["eps"]).to(torch.float8_e4m3fn).float()
    return (normed * i["weight"].float() * silu(i["z"].float())).to(BF16)


def _gate_rounded(i: Inputs, s: Sizes) -> Tensor:
    return _gate(i, s, lambda z: silu(z).to(BF16).float())


def _norm_rounded(i: Inputs, s: Sizes) -> Tensor:
    normed = (_normed(i, _mean_square(i), s["eps"]) * i["weight"].float()).to(BF16)
    return (normed.float() * silu(i["z"].float())).to(BF16)


def _cut_off(i: Inputs, s: Sizes) -> Tensor:
    """The answer loses its low bits instead of being rounded."""
    return (_right(i, s).view(torch.int32) & -65536).view(torch.float32).to(BF16)


WRONG: dict[str, Candidate] = {
    "no root": lambda i, s: _by(i, torch.ones(()), 0.0),
    "no gate": lambda i, s: _gate(i, s, torch.ones_like),
    "z for the gate": lambda i, s: _gate(i, s, lambda z: z),
    "sigmoid for the gate": lambda i, s: _gate(i, s, torch.sigmoid),
    "half of z for the gate": lambda i, s: _gate(i, s, lambda z: z / 2),
    "expected gate": lambda i, s: _gate(i, s, lambda z: silu(z).mean()),
    "relu": lambda i, s: _gate(i, s, torch.relu),
    "gelu": lambda i, s: _gate(i, s, gelu),
    "other slope": lambda i, s: _gate(i, s, lambda z: z * torch.sigmoid(1.1 * z)),
    "gate alone": lambda i, s: (i["weight"].float() * silu(i["z"].float())).to(BF16),
    "no weight": lambda i, s: _weighed(i, s, 1.0),
    "weight + 1": lambda i, s: _weighed(i, s, i["weight"].float() + 1),
    "gate before the norm": _gate_first,
    "x and z swapped": lambda i, s: _right({**i, "x": i["z"], "z": i["x"]}, s).to(BF16),
    "no eps": lambda i, s: _by(i, _mean_square(i) + 1e-30, 0.0),
    "eps outside the root": lambda i, s: _by(i, (_mean_square(i).sqrt() + s["eps"]).square(), 0.0),
    "mean over the batch": lambda i, s: _by(i, _mean_square(i).mean(), s["eps"]),
    "one root for two rows": _two_rows_at_once,
    "expected mean": lambda i, s: _by(i, torch.tensor(1.0), s["eps"]),
    "half of the row": lambda i, s: _by(i, _mean_square(i, slice(0, s["hidden_size"] // 2)), s["eps"]),
    "last sixteenth left out": lambda i, s: _by(
        i, _mean_square(i, slice(0, s["hidden_size"] * 15 // 16)) * 15 / 16, s["eps"]
    ),
    "sum for mean": lambda i, s: _by(i, _mean_square(i) * s["hidden_size"], s["eps"]),
    "mean of sizes": lambda i, s: _by(i, i["x"].float().abs().mean(-1, keepdim=True).square(), s["eps"]),
    "layer norm": _layer_norm,
    "normed in fp8": _normed_in_fp8,
    "gate rounded to bf16": _gate_rounded,
    "norm rounded to bf16": _norm_rounded,
    "cut off": _cut_off,
}


def _by_tanh(i: Inputs, s: Sizes) -> Tensor:
    return _gate(i, s, lambda z: z * (0.5 * torch.tanh(0.5 * z) + 0.5))


def _sums_parts(i: Inputs, s: Sizes) -> Tensor:
    parts = [p.float().square().sum(-1, keepdim=True) for p in i["x"].chunk(5, dim=-1)]
    return _by(i, torch.stack(parts).flip(0).sum(0) * (1 / s["hidden_size"]), s["eps"])


def _gate_times_weight_first(i: Inputs, s: Sizes) -> Tensor:
    z = i["z"].float()
    factor = i["weight"].float() * z / (1 + torch.exp2(z * -1.44269504))
    return (i["x"].float() * factor / (_mean_square(i) + float(s["eps"])).sqrt()).to(BF16)


def _in_float64(i: Inputs, s: Sizes) -> Tensor:
    x, z, weight = (i[name].double() for name in ("x", "z", "weight"))
    return (x / (x.square().mean(-1, keepdim=True) + float(s["eps"])).sqrt() * weight * silu(z)).to(BF16)


RIGHT: dict[str, Candidate] = {
    "gate by tanh": _by_tanh,
    "sums parts": _sums_parts,
    "gate times weight first": _gate_times_weight_first,
    "in float64": _in_float64,
}


def _by_exponential(i: Inputs, s: Sizes) -> Tensor:
    """exp(z) / (1 + exp(z)) has no value where exp(z) overflows."""
    return _gate(i, s, lambda z: z * torch.exp(z) / (1 + torch.exp(z)))


WRONG_ON_CORNERS: dict[tuple[str, str], Candidate] = {
    ("zero_rows", "nothing under the root"): lambda i, s: _by(i, _mean_square(i), 0.0),
    ("large", "squares in fp16"): lambda i, s: _by(i, i["x"].half().square().float().mean(-1, keepdim=True), s["eps"]),
    ("one_element", "last column left out"): lambda i, s: _by(
        i, _mean_square(i, slice(0, s["hidden_size"] - 1)), s["eps"]
    ),
    ("below_eps", "eps left out of the root"): lambda i, s: _by(i, _mean_square(i), 0.0),
    ("large_gates", "exp(z) / (1 + exp(z))"): _by_exponential,
    ("far_negative", "gates below -7 taken for 0"): lambda i, s: _gate(i, s, lambda z: silu(z).where(z > -7.0, 0.0)),
}


def _scaled_by_the_largest(i: Inputs, s: Sizes) -> Tensor | None:
    """0 / 0 where a row is zero."""
    largest = i["x"].float().abs().amax(-1, keepdim=True)
    x = i["x"].float() / largest
    scale = torch.rsqrt(x.square().mean(-1, keepdim=True) + s["eps"] / largest.square())
    y = x * scale * i["weight"].float() * silu(i["z"].float())
    return y.to(BF16) if (largest == 0).any() else None


def _squares_in_fp16(i: Inputs, s: Sizes) -> Tensor | None:
    x = i["x"].float()
    return _right({**i, "x": x.clamp(-65504, 65504)}, s).to(BF16) if (x.abs() > 65504).any() else None


def _tiny_taken_for_zero(i: Inputs, s: Sizes) -> Tensor | None:
    x = i["x"].float()
    tiny = (_mean_square(i) < s["eps"] / 16) & (x != 0)
    return _right({**i, "x": x.masked_fill(tiny, 0.0)}, s).to(BF16) if tiny.any() else None


def _empty_by_its_first(i: Inputs, s: Sizes) -> Tensor | None:
    """A row whose first values are zero is taken for zero."""
    x = i["x"].float()
    empty = (x[:, :4] == 0).all(-1) & (x != 0).any(-1)
    return _right({**i, "x": x.masked_fill(empty.unsqueeze(-1), 0.0)}, s).to(BF16) if empty.any() else None


SPECIAL: dict[str, Candidate] = {
    "scaled by the largest": _scaled_by_the_largest,
    "squares in fp16": _squares_in_fp16,
    "tiny taken for zero": _tiny_taken_for_zero,
    "empty by its first values": _empty_by_its_first,
    "exp overflows": lambda i, s: _by_exponential(i, s) if (i["z"] > 89).any() else None,
}
