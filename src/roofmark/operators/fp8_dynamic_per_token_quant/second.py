"""A second `fp8_dynamic_per_token_quant`: the largest of a row by its bits, codes by search among their boundaries.

The bits of a number without its sign rise with its size, so the largest of a row is one of integers. A code is the
place of |x| / scale among the 126 middles between neighbouring codes. A middle goes to the even code: where that is
the upper one, the boundary is the float32 number just below.
"""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

from roofmark.operators import Sizes, fp8

# Numbers that are searched at a time.
PIECE = 1 << 25


def second(inputs: Mapping[str, Tensor], sizes: Sizes) -> tuple[Tensor, Tensor]:
    x = inputs["x"]
    tokens, width = x.shape
    kind = fp8.kind(x.device)
    bounds, top = boundaries(kind, x.device)
    q = torch.empty(x.shape, dtype=torch.uint8, device=x.device)
    scale = torch.empty(tokens, dtype=torch.float32, device=x.device)
    step = max(1, PIECE // width)
    for start in range(0, tokens, step):
        rows = slice(start, start + step)
        size = x[rows].contiguous().view(torch.int16) & 0x7FFF
        scale[rows] = size.amax(-1).view(torch.bfloat16).float() / top
        divisor = torch.where(scale[rows] > 0, scale[rows], 1.0).unsqueeze(-1)
        code = torch.bucketize(size.view(torch.bfloat16).float() / divisor, bounds, out_int32=True)
        # no sign on zero, which in fnuz would be NaN
        code += ((x[rows] < 0) & (code > 0)).int() << 7
        q[rows] = code.to(torch.uint8)
    return q.view(kind), scale


def boundaries(kind: torch.dtype, device: torch.device) -> tuple[Tensor, float]:
    """The largest float32 numbers that still go to each code but the last, and the value of that one."""
    bias, codes = (8, 128) if kind == fp8.FNUZ else (7, 127)
    code = torch.arange(codes, device=device, dtype=torch.int32)
    exponent = (code >> 3).clamp(min=1) - bias - 3  # that of a unit in the last place
    value = torch.ldexp(torch.where(code < 8, code, code % 8 + 8).float(), exponent)
    middle = (value[:-1] + value[1:]) / 2
    below = torch.nextafter(middle, torch.zeros_like(middle))
    return torch.where(code[:-1] % 2 == 1, below, middle), float(value[-1])
