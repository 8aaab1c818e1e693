"""The judge's side of `causal_conv1d`: float64 values of chosen channels, and a right kernel's error."""

from __future__ import annotations

import random
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from roofmark.operators.draw import chunks, near
from roofmark.operators.expected import Expected

# Half a unit in the last place of bfloat16, relative.
ROUNDING = torch.finfo(torch.bfloat16).eps / 2
# float32 sums of five, an approximate exponential and division.
FLOAT32 = 2.0**-18
# A sigmoid made from tanh is off by as much as one near 1, relative to the sum.
SIGMOID = 2.0**-23
# Exponentials beyond the range of float32 may be taken for infinite.
FLUSHED = 2.0**-120


def neighbours(rng: random.Random, **sizes: Any) -> tuple[dict[str, Any], dict[str, Any]]:
    first, second = near(rng, sizes["token_count"])
    return {**sizes, "token_count": first}, {**sizes, "token_count": second}


def rows_of(sizes: Mapping[str, Any], index: Tensor) -> dict[str, Tensor]:
    """The channels `index` of `out`, and all of the state with the first of them."""
    return {"out": index, "conv_states": index[index == 0][:1]}


def expected_rows(inputs: Mapping[str, Tensor], sizes: Mapping[str, Any], index: Tensor) -> dict[str, Expected]:
    """`out` of the channels `index`, and with the first of all channels the whole state, exactly.

    Bound: every product may be rounded to bfloat16 before the sum, as the deployed kernel does, or not; then silu,
    whose slope carries that on, and one rounding of the output.
    """
    x, state = inputs["x"], inputs["conv_states"][0]
    tokens, width = sizes["token_count"], sizes["width"]
    value = torch.empty((len(index), tokens), dtype=torch.float64, device=x.device)
    bound = torch.empty_like(value)
    for part in chunks(len(index), 64 * tokens):
        rows = index[part]
        bias = inputs["bias"][rows].double().unsqueeze(1)
        weight = inputs["weight"][rows].double()
        seen = torch.cat([state[rows], x[rows]], dim=1).double().unfold(1, tokens, 1)
        total = bias + torch.einsum("rit,ri->rt", seen, weight)
        slack = torch.einsum("rit,ri->rt", seen.abs(), weight.abs()).mul_(ROUNDING)
        slack.add_(bias.abs() + slack / ROUNDING, alpha=FLOAT32)
        out = _activated(total, sizes)
        ends = [(_activated(end, sizes) - out).abs() for end in (total + slack, total - slack)]
        carried = torch.maximum(*ends).add_(total.abs(), alpha=SIGMOID)
        value[part] = out
        bound[part] = carried.add_(out.abs(), alpha=ROUNDING + FLOAT32).add_(FLUSHED)
    last = torch.cat([state, x[:, -(width - 1) :]], dim=1)[:, -(width - 1) :].unsqueeze(0)
    wanted = last.double()[: len(rows_of(sizes, index)["conv_states"])]
    return {"out": Expected(value, bound), "conv_states": Expected(wanted, None)}


def _activated(total: Tensor, sizes: Mapping[str, Any]) -> Tensor:
    return functional.silu(total) if sizes["activation"] == "silu" else total.clone()
