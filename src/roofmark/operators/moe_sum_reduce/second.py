"""A second `moe_sum_reduce`: one expert after another in float32, what each sum loses kept beside it.

Neumaier's sum: whatever rounding takes from the smaller of two numbers is added up apart and given back at the end.
"""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

from roofmark.operators import Sizes

# Numbers of the output that are summed at a time.
PIECE = 1 << 24


def second(inputs: Mapping[str, Tensor], sizes: Sizes) -> Tensor:
    x = inputs["x"]
    tokens, top_k, width = x.shape
    out = torch.empty((tokens, width), dtype=x.dtype, device=x.device)
    step = max(1, PIECE // width)
    for start in range(0, tokens, step):
        rows = slice(start, start + step)
        total = torch.zeros_like(out[rows], dtype=torch.float32)
        lost = torch.zeros_like(total)
        for expert in range(top_k):
            value = x[rows, expert].float()
            grown = total + value
            of_value = (total - grown) + value
            of_total = (value - grown) + total
            lost += torch.where(total.abs() >= value.abs(), of_value, of_total)
            total = grown
        out[rows] = ((total + lost) * sizes["routed_scaling_factor"]).to(x.dtype)
    return out
