"""The judge's side of `fp8_blockscale_fused_moe`: float64 values of chosen tokens, and a right kernel's error."""

from __future__ import annotations

import random
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from roofmark.operators import fp8, routing
from roofmark.operators.draw import chunks, near
from roofmark.operators.expected import Expected

BLOCK = 128
# Half a unit in the last place of bfloat16, relative.
ROUNDING = torch.finfo(torch.bfloat16).eps / 2
# What rounding silu(gate) · up to fp8 adds up to over the intermediate size, in units of the root of the sum of
# squares: signs are random, and the errors measured are normal with a standard deviation of 0.0225 to 0.0235. Some
# 6 of them are allowed, 6.5 with what the bfloat16 roundings add where the least is added, for 10^9 outputs are
# looked at. Where few terms are most of a sum this is no less: each is off by 1/16 of itself at most, so one by
# 0.0625 of the root, n that are equally large by 0.0625 √n, which is below 0.135 up to n = 4; and more of them are
# hardly ever all off by the most. The inexact sums of fp8 tensor cores are far smaller.
SPREAD = 0.135


def neighbours(rng: random.Random, **sizes: Any) -> tuple[dict[str, Any], dict[str, Any]]:
    first, second = near(rng, sizes["token_count"])
    return {**sizes, "token_count": first}, {**sizes, "token_count": second}


def expected_rows(inputs: Mapping[str, Tensor], sizes: Mapping[str, Any], index: Tensor) -> dict[str, Expected]:
    """`out` of the tokens `index`, one expert after the other, some blocks of the intermediate size at a time.

    Bound: silu(gate) · up may be quantised to fp8 before the second product, 128 columns with a scale, as the
    deployed kernels do; each expert's weighted share and the sum may be rounded to bfloat16.
    """
    weights = inputs["topk_weights"][index].double()
    value = torch.zeros((len(index), sizes["hidden_size"]), dtype=torch.float64, device=index.device)
    shares, squares = torch.zeros_like(value), torch.zeros_like(value)
    for expert, rows, places in routing.by_expert(inputs["topk_ids"][index]):
        x = fp8.wide(inputs["hidden"][index[rows]]).double().view(len(rows), -1, BLOCK)
        x.mul_(inputs["hidden_scales"][index[rows]].unsqueeze(-1))
        share, square = _through(x.flatten(1), *(inputs[key][expert] for key in ("w1", "w1_scales", "w2", "w2_scales")))
        weight = weights[rows, places].unsqueeze(-1)
        value.index_add_(0, rows, share.mul_(weight))
        shares.index_add_(0, rows, share.abs_())
        squares.index_add_(0, rows, square.mul_(weight.square()))
    bound = squares.sqrt_().mul_(SPREAD).add_(shares.add_(value.abs()), alpha=ROUNDING)
    return {"out": Expected(value, bound)}


def _through(x: Tensor, w1: Tensor, w1_scales: Tensor, w2: Tensor, w2_scales: Tensor) -> tuple[Tensor, Tensor]:
    """What an expert makes of tokens, [tokens, H] float64, and the sum of the squares that add up to it."""
    inner, blocks = w2.shape[1], w2_scales.shape[1]
    share = torch.zeros((len(x), len(w2)), dtype=torch.float64, device=x.device)
    square = torch.zeros_like(share)
    for part in chunks(blocks, 64 * BLOCK * x.shape[1]):
        columns = slice(part.start * BLOCK, part.stop * BLOCK)
        gate = x @ _scaled(w1[:inner][columns], w1_scales[:blocks][part]).T
        up = x @ _scaled(w1[inner:][columns], w1_scales[blocks:][part]).T
        product = torch.nn.functional.silu(gate).mul_(up)
        down = _scaled(w2[:, columns], w2_scales[:, part]).T
        share.addmm_(product, down)
        square.addmm_(product.square_(), down.square_())
    return share, square


def _scaled(codes: Tensor, scales: Tensor) -> Tensor:
    """The matrix that fp8 codes and their scales stand for, float64."""
    rows, columns = scales.shape
    wide = fp8.wide(codes).double().view(rows, BLOCK, columns, BLOCK)
    return wide.mul_(scales[:, None, :, None]).view(codes.shape)
