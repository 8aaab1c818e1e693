"""Wrong and right answers of `silu_and_mul`; see `roofmark.operators.zoo`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import gelu, silu

from roofmark.operators.zoo import Candidate, fp8

BF16 = torch.bfloat16
Inputs = Mapping[str, Tensor]


def _gated(i: Inputs, function: Callable[[Tensor, Tensor], Tensor]) -> Tensor:
    gate, up = i["x"].float().chunk(2, dim=-1)
    return function(gate, up).to(BF16)


ROWS = ("x",)
WRONG: dict[str, Candidate] = {
    "gate": lambda i, s: _gated(i, lambda g, u: g),
    "up": lambda i, s: _gated(i, lambda g, u: u),
    "no sigmoid": lambda i, s: _gated(i, lambda g, u: g * u),
    "half for the sigmoid": lambda i, s: _gated(i, lambda g, u: g * u / 2),
    "sigmoid alone": lambda i, s: _gated(i, lambda g, u: torch.sigmoid(g) * u),
    "no up": lambda i, s: _gated(i, lambda g, u: silu(g)),
    "halves swapped": lambda i, s: _gated(i, lambda g, u: silu(u) * g),
    "relu": lambda i, s: _gated(i, lambda g, u: g.relu() * u),
    "gelu": lambda i, s: _gated(i, lambda g, u: gelu(g) * u),
    "other slope": lambda i, s: _gated(i, lambda g, u: g * torch.sigmoid(1.1 * g) * u),
    "interleaved": lambda i, s: (silu(i["x"][:, ::2].float()) * i["x"][:, 1::2].float()).to(BF16),
    "gate in fp8": lambda i, s: _gated(i, lambda g, u: silu(fp8(g)) * u),
    "all in bf16": lambda i, s: _gated(i, lambda g, u: g.to(BF16) * torch.sigmoid(g.to(BF16)) * u.to(BF16)),
}
RIGHT: dict[str, Candidate] = {
    "rounds silu": lambda i, s: silu(i["x"].float().chunk(2, -1)[0]).to(BF16) * i["x"].chunk(2, -1)[1],
    "by tanh": lambda i, s: _gated(i, lambda g, u: g * (0.5 * torch.tanh(0.5 * g) + 0.5) * u),
    "divides": lambda i, s: _gated(i, lambda g, u: g * u / (1 + torch.exp2(g * -1.44269504))),
}
WRONG_ON_CORNERS: dict[tuple[str, str], Candidate] = {}


def _exp_overflows(i: Inputs, s: dict[str, Any]) -> Tensor | None:
    gate, up = i["x"].float().chunk(2, -1)
    power = gate.exp()
    return (gate * (power / (1 + power)) * up).to(BF16) if (gate > 89).any() else None


def _gates_cut(i: Inputs, s: dict[str, Any]) -> Tensor | None:
    gate, up = i["x"].float().chunk(2, -1)
    return (silu(gate.clamp(-16, 16)) * up).to(BF16) if (gate > 18).any() else None


def _small_gates_dropped(i: Inputs, s: dict[str, Any]) -> Tensor | None:
    gate, up = i["x"].float().chunk(2, -1)
    small = (gate.abs() < 2.0**-16) & (gate != 0)
    return (silu(gate.masked_fill(small, 0.0)) * up).to(BF16) if small.any() else None


def _product_in_fp16(i: Inputs, s: dict[str, Any]) -> Tensor | None:
    gate, up = i["x"].float().chunk(2, -1)
    made = silu(gate) * up
    return made.clamp(-65504, 65504).to(BF16) if (made.abs() > 2 * 65504).any() else None


SPECIAL: dict[str, Candidate] = {
    "exp overflows": _exp_overflows,
    "gates cut at 16": _gates_cut,
    "small gates dropped": _small_gates_dropped,
    "product in fp16": _product_in_fp16,
}
