"""The judge's side of `fused_moe`: float64 values of chosen tokens, expert by expert, and a right kernel's error."""

from __future__ import annotations

import random
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from roofmark.operators import routing
from roofmark.operators.draw import chunks, near
from roofmark.operators.expected import Expected

# Half a unit in the last place of bfloat16, relative.
ROUNDING = torch.finfo(torch.bfloat16).eps / 2
# What rounding gate, up, silu(gate) and their product to bfloat16 adds up to over the intermediate size, in half
# units of the root of the sum of squares: errors are spread evenly and their signs are random, so that the standard
# deviation is about 0.45, and some 7 of them are allowed.
SPREAD = 3.0


def neighbours(rng: random.Random, **sizes: Any) -> tuple[dict[str, Any], dict[str, Any]]:
    first, second = near(rng, sizes["token_count"])
    return {**sizes, "token_count": first}, {**sizes, "token_count": second}


def expected_rows(inputs: Mapping[str, Tensor], sizes: Mapping[str, Any], index: Tensor) -> dict[str, Expected]:
    """`out` of the tokens `index`, one expert after the other, some of the intermediate size at a time.

    Bound: gate, up, silu(gate) and its product with up may be rounded to bfloat16 before they go on, as between the
    deployed kernels, and so is each expert's weighted share and the sum.
    """
    weights = inputs["topk_weights"][index].double()
    value = torch.zeros((len(index), sizes["hidden_size"]), dtype=torch.float64, device=index.device)
    shares, squares = torch.zeros_like(value), torch.zeros_like(value)
    for expert, rows, places in routing.by_expert(inputs["topk_ids"][index]):
        share, square = _through(inputs["hidden"][index[rows]], inputs["w1"][expert], inputs["w2"][expert])
        weight = weights[rows, places].unsqueeze(-1)
        value.index_add_(0, rows, share.mul_(weight))
        shares.index_add_(0, rows, share.abs_())
        squares.index_add_(0, rows, square.mul_(weight.square()))
    bound = squares.sqrt_().mul_(SPREAD).add_(shares).add_(value.abs()).mul_(ROUNDING)
    return {"out": Expected(value, bound)}


def _through(hidden: Tensor, w1: Tensor, w2: Tensor) -> tuple[Tensor, Tensor]:
    """What an expert makes of tokens, [tokens, H] float64, and how much errors of its intermediates weigh, squared."""
    x, inner = hidden.double(), w2.shape[1]
    share = torch.zeros((len(x), len(w2)), dtype=torch.float64, device=x.device)
    square = torch.zeros_like(share)
    for part in chunks(inner, 32 * x.shape[1] + 32 * len(w2)):
        gate = x @ w1[:inner][part].double().T
        up = x @ w1[inner:][part].double().T
        sigmoid = torch.sigmoid(gate)
        silu = gate * sigmoid
        product = silu * up
        # relative errors of the gate, of up, of silu(gate) and of the product
        by_gate = (sigmoid + silu * (1 - sigmoid)) * gate * up
        down = w2[:, part].double().T
        share.addmm_(product, down)
        square.addmm_(product.square().mul_(3).add_(by_gate.square_()), down.square_())
    return share, square
