"""A second `per_token_group_quant_fp8`: maxima by halving, codes made of the bits of a float32 sum.

To a quotient between 2^e and 2^(e+1), whose codes lie 2^(e-3) apart, 2^(e+20) is added: the adder rounds to a multiple
of 2^(e-3), ties to even, and how many of them there are stands in the last bits of the sum. With the exponent they
are the code, a carry into the next octave among them.
"""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

from roofmark.operators import Sizes, fp8

# Numbers that are quantised at a time.
PIECE = 1 << 25


def second(inputs: Mapping[str, Tensor], sizes: Sizes) -> tuple[Tensor, Tensor]:
    x, group = inputs["x"], sizes["group_size"]
    tokens, width = x.shape
    kind = fp8.kind(x.device)
    q = torch.empty(x.shape, dtype=torch.uint8, device=x.device)
    scale = torch.empty((tokens, width // group), dtype=torch.float32, device=x.device)
    step = max(1, PIECE // width)
    for start in range(0, tokens, step):
        rows = slice(start, start + step)
        values = x[rows].reshape(-1, width // group, group).float()
        size = values.abs()
        scale[rows] = largest(size) / (240.0 if kind == fp8.FNUZ else 448.0)
        size /= torch.where(scale[rows] > 0, scale[rows], 1.0).unsqueeze(-1)
        code = codes(size, kind)
        # no sign on zero, which in fnuz would be NaN
        code += ((values < 0) & (code > 0)).int() << 7
        q[rows] = code.to(torch.uint8).view(-1, width)
    return q.view(kind), scale


def largest(size: Tensor) -> Tensor:
    """The largest along the last dimension: its halves against each other until one is left."""
    while size.shape[-1] > 1:
        half = size.shape[-1] // 2
        pairs = torch.maximum(size[..., :half], size[..., half : 2 * half])
        if size.shape[-1] % 2:
            pairs[..., :1] = torch.maximum(pairs[..., :1], size[..., -1:])
        size = pairs
    return size.squeeze(-1)


def codes(size: Tensor, kind: torch.dtype) -> Tensor:
    """The int32 codes of float32 numbers that are not negative, to nearest and saturating."""
    least, last = (-7, 0x7F) if kind == fp8.FNUZ else (-6, 0x7E)
    exponent = ((size.view(torch.int32) >> 23) - 127).clamp_(min=least)
    anchor = ((exponent + (20 + 127)) << 23).view(torch.float32)
    count = (size + anchor).view(torch.int32) & 0x1F
    return count.add_((exponent - least) << 3).clamp_(max=last)
