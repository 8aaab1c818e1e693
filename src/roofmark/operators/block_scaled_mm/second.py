"""A second `block_scaled_mm`: codes by a table of 256 numbers, all scales on the side of `a`.

In a tile of `group_n` columns of the output the scales of `b` depend on the block of k alone, so they join those of
`a`: a tile is one product of the rescaled rows with bare codes. Codes are decoded from their bits, without torch's
own conversion.
"""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

from roofmark.operators import Sizes

# Numbers of `a` that are rescaled at a time: 128 MB of float32.
PIECE = 1 << 25


def second(inputs: Mapping[str, Tensor], sizes: Sizes) -> Tensor:
    a, b, a_scales, b_scales = (inputs[name] for name in ("a", "b", "a_scales", "b_scales"))
    (m, k), n, blocks = a.shape, b.shape[0], a_scales.shape[1]
    wide, step = decoded(b), max(1, PIECE // k)
    out = torch.empty((m, n), dtype=torch.bfloat16, device=a.device)
    for start in range(0, m, step):
        rows = slice(start, start + step)
        codes = decoded(a[rows]).view(-1, blocks, k // blocks)
        for tile in range(b_scales.shape[0]):
            columns = slice(tile * sizes["group_n"], (tile + 1) * sizes["group_n"])
            scaled = codes * (a_scales[rows] * b_scales[tile]).unsqueeze(-1)
            out[rows, columns] = (scaled.view(-1, k) @ wide[columns].T).to(torch.bfloat16)
    return out


def decoded(codes: Tensor) -> Tensor:
    """The float32 values of e4m3 codes."""
    return table(codes.dtype, codes.device)[codes.view(torch.uint8).int()]


def table(dtype: torch.dtype, device: torch.device) -> Tensor:
    """The value of each of the 256 codes: a sign, four bits of exponent, three of fraction; NaN where it is none."""
    code = torch.arange(256, device=device)
    fnuz = dtype == torch.float8_e4m3fnuz
    exponent, fraction = (code >> 3) & 15, (code & 7).float()
    bias = 8 if fnuz else 7
    normal = (1 + fraction / 8) * torch.exp2((exponent - bias).float())
    value = torch.where(exponent == 0, fraction * 2.0 ** (1 - bias - 3), normal)
    value[[128] if fnuz else [127, 255]] = torch.nan
    return torch.where(code >= 128, -value, value)
