"""The judge's side of `fused_qk_rmsnorm`: float64 values of chosen rows, and a right kernel's error."""

from __future__ import annotations

import random
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from roofmark.operators.draw import chunks, near
from roofmark.operators.expected import Expected

EPS = 1e-6
# Half a unit in the last place of float16, relative.
ROUNDING = torch.finfo(torch.float16).eps / 2
# float32 sums over a head in any order, an approximate reciprocal root: far below the rounding of the output.
FLOAT32 = 2.0**-18


def neighbours(rng: random.Random, **sizes: Any) -> tuple[dict[str, Any], dict[str, Any]]:
    first, second = near(rng, sizes["num_tokens"])
    return {**sizes, "num_tokens": first}, {**sizes, "num_tokens": second}


def expected_rows(inputs: Mapping[str, Tensor], sizes: Mapping[str, Any], index: Tensor) -> dict[str, Expected]:
    """`out` of the rows `index`.

    Bound: the deployed kernel keeps float32 up to the store, so one rounding of the output's type, relative to
    it, and float32's own errors. The value heads are the inputs', bit by bit.
    """
    qkv = inputs["qkv"]
    queries = sizes["head_num"]
    normed = queries + sizes["kv_head_num"]
    weight = torch.stack([inputs["q_weight"].double()] * queries + [inputs["k_weight"].double()] * (normed - queries))
    value = torch.empty((len(index), qkv.shape[1]), dtype=torch.float64, device=qkv.device)
    bound = torch.zeros_like(value)
    for part in chunks(len(index), 32 * qkv.shape[1]):
        heads = qkv[index[part]].double().view(part.stop - part.start, -1, sizes["size_per_head"])
        mean_square = heads[:, :normed].square().mean(-1, keepdim=True)
        heads[:, :normed] *= weight / torch.sqrt(mean_square + EPS)
        value[part] = heads.flatten(1)
    width = normed * sizes["size_per_head"]
    bound[:, :width] = value[:, :width].abs() * (ROUNDING + FLOAT32)
    return {"out": Expected(value, bound)}
