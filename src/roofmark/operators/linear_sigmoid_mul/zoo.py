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

ROWS = ("x", "m")


def _product(i: Inputs, columns: slice = slice(None)) -> Tensor:
    return i["x"][:, columns].float() @ i["weight"][:, columns].float().T


def _z(i: Inputs) -> Tensor:
    return (_product(i) + i["bias"].float()).expand(i["m"].shape)


def _times(i: Inputs, gate: Tensor) -> Tensor:
    return (gate * i["m"].float()).to(BF16)


def _gate(i: Inputs, z: Tensor) -> Tensor:
    return _times(i, torch.sigmoid(z))


def _over(i: Inputs, s: Sizes, count: int) -> Tensor:
    """The first columns of x and the weight alone."""
    return _gate(i, _product(i, slice(0, count)) + i["bias"].float())


def _of_several(mistake: Candidate) -> Candidate:
    """The mistake where a row has several gates."""
    return lambda i, s: mistake(i, s) if s["out_features"] > 1 else None


def _one_row(i: Inputs, s: Sizes) -> Tensor | None:
    """The first row's gate for all."""
    return _gate(i, _z(i)[:1].expand_as(i["m"])) if len(i["x"]) > 1 else None


def _untransposed(i: Inputs, s: Sizes) -> Tensor | None:
    square = s["hidden_size"] == s["out_features"]
    return _gate(i, i["x"].float() @ i["weight"].float() + i["bias"].float()) if square else None


def _fp8(x: Tensor) -> Tensor:
    """`x`, whose values are of size 1/64 to 7, rounded to fp8 and back."""
    return x.float().to(torch.float8_e4m3fn).float()


def _x_in_fp8(i: Inputs, s: Sizes) -> Tensor:
    return _gate(i, _z({**i, "x": _fp8(i["x"] * 64) / 64}))


def _weight_in_fp8(i: Inputs, s: Sizes) -> Tensor:
    return _gate(i, _z({**i, "weight": _fp8(i["weight"] * 4096) / 4096}))


def _sums_in_bf16(i: Inputs, s: Sizes) -> Tensor:
    """Products of 64 columns, added up in bfloat16."""
    total = torch.zeros_like(i["m"])
    for start in range(0, s["hidden_size"], 64):
        total += _product(i, slice(start, start + 64)).to(BF16)
    return _gate(i, total.float() + i["bias"].float())


WRONG: dict[str, Candidate] = {
    "half of m": lambda i, s: _times(i, torch.tensor(0.5)),
    "no gate": lambda i, s: i["m"],
    "gate alone": lambda i, s: torch.sigmoid(_z(i)).to(BF16),
    "z for the gate": lambda i, s: _times(i, _z(i)),
    "silu": lambda i, s: _times(i, _z(i) * torch.sigmoid(_z(i))),
    "tanh": lambda i, s: _times(i, torch.tanh(_z(i))),
    "sigmoid of m": lambda i, s: (_z(i) * torch.sigmoid(i["m"].float())).to(BF16),
    "gate of a tenth steeper": lambda i, s: _gate(i, 1.1 * _z(i)),
    "hard sigmoid": lambda i, s: _times(i, (_z(i) / 6 + 0.5).clamp(0, 1)),
    "step": lambda i, s: _times(i, (_z(i) > 0).float()),
    "1 less the gate": lambda i, s: _gate(i, -_z(i)),
    "expected gate": lambda i, s: _times(i, torch.sigmoid(_z(i)).mean()),
    "mean of a row's gates": _of_several(lambda i, s: _times(i, torch.sigmoid(_z(i)).mean(-1, keepdim=True))),
    "gate of the mean of z": _of_several(lambda i, s: _gate(i, _z(i).mean(-1, keepdim=True))),
    "first column's gate": _of_several(lambda i, s: _gate(i, _z(i)[:, :1])),
    "first row's gate": _one_row,
    "no bias": lambda i, s: _gate(i, _product(i)),
    "bias alone": lambda i, s: _gate(i, i["bias"].float()),
    "bias taken off": lambda i, s: _gate(i, _product(i) - i["bias"].float()),
    "bias after the sigmoid": lambda i, s: _times(i, torch.sigmoid(_product(i)) + i["bias"].float()),
    "weight not transposed": _untransposed,
    "half of the columns": lambda i, s: _over(i, s, s["hidden_size"] // 2),
    "last 64 columns left out": lambda i, s: _over(i, s, s["hidden_size"] - 64),
    "last 16 columns left out": lambda i, s: _over(i, s, s["hidden_size"] - 16),
    "x in fp8": _x_in_fp8,
    "weight in fp8": _weight_in_fp8,
    "m in fp8": lambda i, s: _gate({**i, "m": _fp8(i["m"])}, _z(i)),
    "sums in bf16": _sums_in_bf16,
}


def _rounds_z(i: Inputs, s: Sizes) -> Tensor:
    return torch.sigmoid(_z(i).to(BF16)) * i["m"]


def _by_tanh(i: Inputs, s: Sizes) -> Tensor:
    return _times(i, 0.5 * torch.tanh(0.5 * _z(i)) + 0.5)


def _in_parts(i: Inputs, s: Sizes) -> Tensor:
    """Products of 96 columns, from the last to the first, and exp2."""
    z = i["bias"].float().expand(i["m"].shape)
    for start in reversed(range(0, s["hidden_size"], 96)):
        z = z + _product(i, slice(start, start + 96))
    return (i["m"].float() / (1 + torch.exp2(z * -1.44269504))).to(BF16)


def _in_float64(i: Inputs, s: Sizes) -> Tensor:
    z = i["x"].double() @ i["weight"].double().T + i["bias"].double()
    return (torch.sigmoid(z) * i["m"].double()).to(BF16)


RIGHT: dict[str, Candidate] = {
    "rounds z and its sigmoid": _rounds_z,
    "gate by tanh": _by_tanh,
    "in parts": _in_parts,
    "in float64": _in_float64,
}


def _by_exponential(i: Inputs, s: Sizes) -> Tensor:
    """exp(z) / (1 + exp(z)) has no value where exp(z) overflows."""
    return _times(i, torch.exp(_z(i)) / (1 + torch.exp(_z(i))))


WRONG_ON_CORNERS: dict[tuple[str, str], Candidate] = {
    ("saturated", "exp(z) / (1 + exp(z))"): _by_exponential,
    ("saturated", "z cut off at 4"): lambda i, s: _gate(i, _z(i).clamp(-4.0, 4.0)),
    ("far_negative", "gates below a thousandth taken for 0"): lambda i, s: _times(
        i, torch.sigmoid(_z(i)).where(_z(i) > -7.0, torch.zeros(()))
    ),
    ("one_element", "last column left out"): lambda i, s: _over(i, s, s["hidden_size"] - 1),
    ("zero_rows", "half of m"): lambda i, s: _times(i, torch.tensor(0.5)),
    ("large_factors", "m in fp16"): lambda i, s: _gate({**i, "m": i["m"].half()}, _z(i)),
}


def _exp_overflows(i: Inputs, s: Sizes) -> Tensor | None:
    return _by_exponential(i, s) if (_z(i) > 89).any() else None


def _zero_rows_skipped(i: Inputs, s: Sizes) -> Tensor | None:
    """Where x is zero, so is y."""
    zero = (i["x"] == 0).all(-1, keepdim=True)
    return _gate(i, _z(i)).masked_fill(zero, 0.0) if zero.any() else None


def _empty_by_its_first(i: Inputs, s: Sizes) -> Tensor | None:
    """A row of x whose first values are zero is taken for zero."""
    empty = (i["x"][:, :4] == 0).all(-1) & (i["x"] != 0).any(-1)
    return _gate(i, _z({**i, "x": i["x"].masked_fill(empty.unsqueeze(-1), 0.0)})) if empty.any() else None


def _gate_where_factors_are_zero(i: Inputs, s: Sizes) -> Tensor | None:
    """Factors of zero are taken for none."""
    zero = (i["m"] == 0).all(-1, keepdim=True)
    return _gate({**i, "m": i["m"].masked_fill(zero, 1.0)}, _z(i)) if zero.any() else None


SPECIAL: dict[str, Candidate] = {
    "exp overflows": _exp_overflows,
    "zero rows skipped": _zero_rows_skipped,
    "empty by its first values": _empty_by_its_first,
    "gate where factors are zero": _gate_where_factors_are_zero,
}
