"""The judge's side of `fp8_dynamic_per_token_quant`: a checker: between two codes either is right."""

from __future__ import annotations

import random
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from roofmark.operators import fp8
from roofmark.operators.draw import chunks, near
from roofmark.operators.expected import Expected

# A scale, relative.
SCALE = 1e-3
# x / scale, relative: far above what float32 loses. x has 8 bits and fp8_max few, so that no quotient but one in
# the very middle of two codes lies this close to it; of drawn quotients some 2 % do.
TIE = 2.0**-14


def neighbours(rng: random.Random, **sizes: Any) -> tuple[dict[str, Any], dict[str, Any]]:
    first, second = near(rng, sizes["token_count"])
    return {**sizes, "token_count": first}, {**sizes, "token_count": second}


def expected_rows(inputs: Mapping[str, Tensor], sizes: Mapping[str, Any], index: Tensor) -> dict[str, Expected]:
    """`q` and `scale` of the rows `index`; between two codes, one right answer of two."""
    x, dtype = inputs["x"], fp8.kind(inputs["x"].device)
    q = torch.empty((len(index), x.shape[1]), dtype=torch.float64, device=x.device)
    scale = torch.empty(len(index), dtype=torch.float64, device=x.device)
    for part in chunks(len(index), 32 * x.shape[1]):
        values = x[index[part]].double()
        scale[part] = values.abs().amax(-1) / fp8.largest(dtype)
        divisor = torch.where(scale[part] > 0, scale[part], 1.0).unsqueeze(-1)
        q[part] = fp8.rounded(values / divisor, dtype)
    return {"q": Expected(q, None), "scale": Expected(scale, scale * SCALE, replaces_tolerance=True)}


def judge_rows(
    inputs: Mapping[str, Tensor], sizes: Mapping[str, Any], index: Tensor, outputs: Mapping[str, Tensor]
) -> str:
    """What is wrong with `q` and `scale`, rows `index` in their order; "" if nothing."""
    x = inputs["x"]
    for part in chunks(len(index), 32 * x.shape[1]):
        y = fp8.Magnitudes.of(x[index[part]].double().unsqueeze(1))
        q, scale = outputs["q"][part].unsqueeze(1), outputs["scale"][part].unsqueeze(1)
        said = fp8.fault(y, q, scale, index[part], scale_tolerance=SCALE, tie=TIE)
        if said:
            return said
    return ""
