"""Wrong answers that must fail, and right ones by another way that must pass."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from roofmark.operators.zoo import Candidate

Inputs = Mapping[str, Tensor]
Sizes = dict[str, Any]
BF16 = torch.bfloat16
EPS = 1e-5

ROWS = ("x",)


def _mean(i: Inputs, part: slice = slice(None)) -> Tensor:
    return i["x"][..., part].float().mean(-1, keepdim=True)


def _variance(i: Inputs, mean: Tensor, part: slice = slice(None)) -> Tensor:
    return (i["x"][..., part].float() - mean).square().mean(-1, keepdim=True)


def _wide(i: Inputs, mean: Tensor, variance: Tensor, eps: float = EPS) -> Tensor:
    """By a mean and a variance of one's choice, in float32."""
    normed = (i["x"].float() - mean) * torch.rsqrt(variance + eps)
    return normed * i["weight"].float() + i["bias"].float()


def _by(i: Inputs, mean: Tensor, variance: Tensor, eps: float = EPS) -> Tensor:
    return _wide(i, mean, variance, eps).to(BF16)


def _right(i: Inputs) -> Tensor:
    return _wide(i, _mean(i), _variance(i, _mean(i)))


def _with(i: Inputs, weight: Tensor | float, bias: Tensor | float) -> Tensor:
    """With another weight and bias."""
    normed = (i["x"].float() - _mean(i)) * torch.rsqrt(_variance(i, _mean(i)) + EPS)
    return (normed * weight + bias).to(BF16)


def _over(i: Inputs, s: Sizes, count: int) -> Tensor:
    """Mean and variance of the first columns alone."""
    part = slice(0, count)
    return _by(i, _mean(i, part), _variance(i, _mean(i, part), part))


def _mean_over(i: Inputs, s: Sizes, count: int) -> Tensor:
    mean = _mean(i, slice(0, count))
    return _by(i, mean, _variance(i, mean))


def _one_mean(i: Inputs, s: Sizes) -> Tensor | None:
    """One mean for all rows."""
    return _by(i, _mean(i).mean(), _variance(i, _mean(i))) if len(i["x"]) > 1 else None


def _one_variance(i: Inputs, s: Sizes) -> Tensor | None:
    """One variance for all rows."""
    return _by(i, _mean(i), _variance(i, _mean(i)).mean()) if len(i["x"]) > 1 else None


def _output_in_fp8(i: Inputs, s: Sizes) -> Tensor:
    return _right(i).to(torch.float8_e4m3fn).to(BF16)


def _normed_in_bf16(i: Inputs, s: Sizes) -> Tensor:
    normed = (i["x"].float() - _mean(i)) * torch.rsqrt(_variance(i, _mean(i)) + EPS)
    return (normed.to(BF16).float() * i["weight"].float() + i["bias"].float()).to(BF16)


def _centred_in_bf16(i: Inputs, s: Sizes) -> Tensor:
    return _by({**i, "x": (i["x"].float() - _mean(i)).to(BF16)}, torch.zeros(()), _variance(i, _mean(i)))


def _cut_off(i: Inputs, s: Sizes) -> Tensor:
    """The answer loses its low bits instead of being rounded."""
    return (_right(i).view(torch.int32) & -65536).view(torch.float32).to(BF16)


ZERO, ONE = torch.zeros(()), torch.ones(())

WRONG: dict[str, Candidate] = {
    "x times weight, plus bias": lambda i, s: _by(i, ZERO, ONE, 0.0),
    "no mean": lambda i, s: _by(i, ZERO, _variance(i, _mean(i))),
    "rms norm": lambda i, s: _by(i, ZERO, _variance(i, ZERO)),
    "root of the mean square": lambda i, s: _by(i, _mean(i), _variance(i, ZERO)),
    "expected variance": lambda i, s: _by(i, _mean(i), ONE),
    "one mean for all": _one_mean,
    "one variance for all": _one_variance,
    "no weight": lambda i, s: _with(i, 1.0, i["bias"].float()),
    "weight + 1": lambda i, s: _with(i, i["weight"].float() + 1, i["bias"].float()),
    "no bias": lambda i, s: _with(i, i["weight"].float(), 0.0),
    "bias taken off": lambda i, s: _with(i, i["weight"].float(), -i["bias"].float()),
    "bias alone": lambda i, s: i["bias"].expand_as(i["x"]),
    "weight and bias swapped": lambda i, s: _with(i, i["bias"].float(), i["weight"].float()),
    "bias weighed": lambda i, s: _with(i, i["weight"].float(), i["bias"].float() * i["weight"].float()),
    "no eps": lambda i, s: _by(i, _mean(i), _variance(i, _mean(i)) + 1e-30, 0.0),
    "eps of 1e-6": lambda i, s: _by(i, _mean(i), _variance(i, _mean(i)), 1e-6),
    "eps outside the root": lambda i, s: _by(i, _mean(i), (_variance(i, _mean(i)).sqrt() + EPS).square(), 0.0),
    "half of the row": lambda i, s: _over(i, s, s["shape"][-1] // 2),
    "last sixteenth left out": lambda i, s: _over(i, s, s["shape"][-1] * 15 // 16),
    "mean of half of the row": lambda i, s: _mean_over(i, s, s["shape"][-1] // 2),
    "sum for variance": lambda i, s: _by(i, _mean(i), _variance(i, _mean(i)) * s["shape"][-1]),
    "no root": lambda i, s: _by(i, _mean(i), (_variance(i, _mean(i)) + EPS).square(), 0.0),
    "mean deviation": lambda i, s: _by(i, _mean(i), (i["x"].float() - _mean(i)).abs().mean(-1, keepdim=True).square()),
    "mean in bf16": lambda i, s: _by(i, _mean(i).to(BF16).float(), _variance(i, _mean(i))),
    "centred in bf16": _centred_in_bf16,
    "normed in bf16": _normed_in_bf16,
    "output in fp8": _output_in_fp8,
    "cut off": _cut_off,
}


def _sums_parts(i: Inputs, s: Sizes) -> Tensor:
    """Means and squares of parts, joined as Chan, Golub and LeVeque do."""
    mean, squares, count = torch.zeros_like(_mean(i)), torch.zeros_like(_mean(i)), 0
    for part in i["x"].float().chunk(11, dim=-1):
        more = part.shape[-1]
        delta = part.mean(-1, keepdim=True) - mean
        squares += (part - part.mean(-1, keepdim=True)).square().sum(-1, keepdim=True)
        squares += delta.square() * (count * more / (count + more))
        mean = mean + delta * (more / (count + more))
        count += more
    return _by(i, mean, squares / count)


def _scale_and_shift(i: Inputs, s: Sizes) -> Tensor:
    inverse = torch.rsqrt(_variance(i, _mean(i)) + EPS)
    return (i["bias"].float() + (i["x"].float() - _mean(i)) * (inverse * i["weight"].float())).to(BF16)


def _in_float64(i: Inputs, s: Sizes) -> Tensor:
    x, weight, bias = (i[name].double() for name in ("x", "weight", "bias"))
    return functional.layer_norm(x, weight.shape, weight, bias, EPS).to(BF16)


RIGHT: dict[str, Candidate] = {
    "two passes": lambda i, s: _right(i).to(BF16),
    "sums parts": _sums_parts,
    "scale and shift": _scale_and_shift,
    "in float64": _in_float64,
}


def _squares_less_mean(i: Inputs, s: Sizes) -> Tensor:
    """The mean of squares less the square of the mean, which float32 can make negative."""
    squares = i["x"].float().square().sum(-1, keepdim=True) / s["shape"][-1]
    return _by(i, _mean(i), squares - _mean(i).square())


WRONG_ON_CORNERS: dict[tuple[str, str], Candidate] = {
    ("zero_rows", "nothing under the root"): lambda i, s: _by(i, _mean(i), _variance(i, _mean(i)), 0.0),
    ("nearly_constant", "mean of squares less square of mean"): _squares_less_mean,
    ("offset", "mean in bf16"): lambda i, s: _by(i, _mean(i).to(BF16).float(), _variance(i, _mean(i))),
    ("large", "squares in fp16"): lambda i, s: _by(
        i, _mean(i), (i["x"].float() - _mean(i)).half().square().float().mean(-1, keepdim=True)
    ),
    ("one_element", "last column left out"): lambda i, s: _over(i, s, s["shape"][-1] - 1),
    ("below_eps", "eps left out of the root"): lambda i, s: _by(i, _mean(i), _variance(i, _mean(i)), 0.0),
}


def _of(i: Inputs, x: Tensor) -> Tensor:
    """The right answer for another x."""
    return _right({**i, "x": x}).to(BF16)


def _constant_by_cancellation(i: Inputs, s: Sizes) -> Tensor | None:
    """The mean of squares less the square of the mean, where there is next to no variance."""
    nearly = _variance(i, _mean(i)) < 1e-6 * _mean(i).square()
    return _squares_less_mean(i, s) if nearly.any() else None


def _constant_gives_zero(i: Inputs, s: Sizes) -> Tensor | None:
    """Rows without variance give 0, not the bias."""
    constant = (i["x"] == i["x"][..., :1]).all(-1, keepdim=True)
    return _right(i).masked_fill(constant, 0.0).to(BF16) if constant.any() else None


def _squares_in_fp16(i: Inputs, s: Sizes) -> Tensor | None:
    x = i["x"].float()
    return _of(i, x.clamp(-65504, 65504)) if (x.abs() > 65504).any() else None


def _tiny_taken_for_zero(i: Inputs, s: Sizes) -> Tensor | None:
    """Rows whose variance is less than a sixteenth of eps."""
    tiny = (_variance(i, _mean(i)) < EPS / 16) & (i["x"].float().abs() < 2.0**-9)
    return _of(i, i["x"].float().masked_fill(tiny, 0.0)) if tiny.any() else None


def _empty_by_its_first(i: Inputs, s: Sizes) -> Tensor | None:
    """A row whose first values are zero is taken for zero."""
    x = i["x"].float()
    empty = (x[..., :4] == 0).all(-1) & (x != 0).any(-1)
    return _of(i, x.masked_fill(empty.unsqueeze(-1), 0.0)) if empty.any() else None


SPECIAL: dict[str, Candidate] = {
    "mean of squares less square of mean": _constant_by_cancellation,
    "constant rows give 0": _constant_gives_zero,
    "squares in fp16": _squares_in_fp16,
    "tiny taken for zero": _tiny_taken_for_zero,
    "empty by its first values": _empty_by_its_first,
}
