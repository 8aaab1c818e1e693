"""RMSNorm for Hopper: y = x · rsqrt(mean(x²) + eps) · weight, bf16 in and out, float32 inside.

A program holds whole rows in registers, so memory sees every byte once. Narrow rows share a program, as long as
every SM still has one. The row count is no part of what is compiled: batches of any size share one kernel.
"""

import torch
import triton
import triton.language as tl

SMS = 132


@triton.jit(do_not_specialize=["rows"])
def _rms_norm(x, weight, out, rows, eps, WIDTH: tl.constexpr, BLOCK: tl.constexpr, ROWS: tl.constexpr):
    row = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)[:, None]
    column = tl.arange(0, BLOCK)[None, :]
    inside = (row < rows) & (column < WIDTH)
    at = row * WIDTH + column
    value = tl.load(x + at, mask=inside, other=0.0).to(tl.float32)
    factor = tl.rsqrt(tl.sum(value * value, axis=1) / WIDTH + eps)
    scale = tl.load(weight + column, mask=column < WIDTH, other=0.0).to(tl.float32)
    tl.store(out + at, (value * factor[:, None] * scale).to(out.dtype.element_ty), mask=inside)


class Model(torch.nn.Module):
    def __init__(self, eps):
        super().__init__()
        self.eps = eps

    def forward(self, x, weight):
        x, weight = x.contiguous(), weight.contiguous()
        out = torch.empty_like(x)
        rows, width = x.shape
        if rows == 0:
            return out
        block = triton.next_power_of_2(width)
        shared = min(max(1, 2048 // block), triton.next_power_of_2(triton.cdiv(rows, 2 * SMS)))
        warps = min(16, max(1, block * shared // 512))
        _rms_norm[(triton.cdiv(rows, shared),)](
            x, weight, out, rows, self.eps, WIDTH=width, BLOCK=block, ROWS=shared, num_warps=warps
        )
        return out
