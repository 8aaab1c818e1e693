"""The judge's side of `chunk_delta_rule_output`: float64 values of chosen sequences, and a right kernel's error."""

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
# float32 sums of a hundred products and exponentials, relative to the sums of sizes: far below the roundings.
FLOAT32 = 2.0**-17
BUDGET = 1 << 28


def neighbours(rng: random.Random, **sizes: Any) -> tuple[dict[str, Any], dict[str, Any]]:
    """One sequence of about the same length, and two short ones."""
    first, second = near(rng, sizes["token_count"])
    return {**sizes, "token_count": first}, {**sizes, "token_count": (second + 1) // 2, "batch_size": 2}


def expected_rows(inputs: Mapping[str, Tensor], sizes: Mapping[str, Any], index: Tensor) -> dict[str, Expected]:
    """`out` of the batch entries `index`, some chunks at a time.

    Bound: the products q k with their decays may be rounded to bfloat16 before the product with v, as the deployed
    kernel does, or not; then the output is rounded. All products add up in float32.
    """
    v, size = inputs["v"], sizes["chunk_size"]
    tokens, heads, value_dim = v.shape[1:]
    value = torch.empty((len(index), *v.shape[1:]), dtype=torch.float64, device=v.device)
    bound = torch.empty_like(value)
    state = sizes["key_dim"] * value_dim
    bytes_per_chunk = 8 * heads * (size * (4 * sizes["key_dim"] + 6 * value_dim + 6 * size) + 2 * state)
    for row, entry in enumerate(index.tolist()):
        one = {name: tensor[entry] for name, tensor in inputs.items()}
        for part in chunks(-(-tokens // size), bytes_per_chunk, budget=BUDGET):
            rows = slice(part.start * size, min(part.stop * size, tokens))
            few = {name: tensor[part if name == "h" else rows].double() for name, tensor in one.items()}
            value[row, rows], bound[row, rows] = _chunks(few, size)
    return {"out": Expected(value, bound)}


def _chunks(few: Mapping[str, Tensor], size: int) -> tuple[Tensor, Tensor]:
    """Values and bounds [tokens, hv, dv] of some chunks that follow each other."""
    tokens, heads = few["v"].shape[:2]
    group = heads // few["q"].shape[1]
    q, k = (_chunked(few[name].repeat_interleave(group, 1), size) for name in ("q", "k"))
    v, h, g = _chunked(few["v"], size), few["h"], _chunked(few["g"].unsqueeze(-1), size)
    later = torch.ones(size, size, dtype=torch.bool, device=g.device).triu(1)
    between = (g - g.mT).masked_fill_(later, -torch.inf).exp_()
    inside = q @ k.mT * between
    value = q @ h * g.exp() + inside @ v
    slack = (q.abs() @ k.abs().mT * between).mul_(FLOAT32).add_(inside.abs_(), alpha=ROUNDING)
    bound = (q.abs() @ h.abs() * g.exp()).mul_(FLOAT32).add_(value.abs(), alpha=ROUNDING).add_(slack @ v.abs())
    scale = q.shape[-1] ** -0.5
    out, error = (x.mul_(scale).transpose(1, 2).flatten(0, 1)[:tokens] for x in (value, bound))
    return out, error


def _chunked(x: Tensor, size: int) -> Tensor:
    """[tokens, heads, d] in chunks: [N, heads, size, d], zeros after the last token."""
    padded = functional.pad(x, (0, 0, 0, 0, 0, -len(x) % size))
    return padded.view(-1, size, *x.shape[1:]).transpose(1, 2)
