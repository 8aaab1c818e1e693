"""Block-scaled fp8 matrix product for Hopper: a · bᵀ, one scale per 128 columns of a, per 128x128 block of b.

Every 128 of k are one tensor-core product from zero, which is scaled and added in float32: the scales need that,
and so does the precision, since Hopper's fp8 products keep few bits of a long sum. Programs that share tiles of b
run side by side.
"""

import torch
import triton
import triton.language as tl

SMS = 132


@triton.jit(do_not_specialize=["m"])
def _block_scaled_mm(
    a, b, a_scales, b_scales, out, m, n, K: tl.constexpr, GROUP_N: tl.constexpr, GROUP_K: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, TOGETHER: tl.constexpr,
):  # fmt: skip
    rows_of_tiles, columns_of_tiles = tl.cdiv(m, BLOCK_M), tl.cdiv(n, BLOCK_N)
    program = tl.program_id(0)
    in_band = TOGETHER * columns_of_tiles
    first = program // in_band * TOGETHER
    height = min(rows_of_tiles - first, TOGETHER)
    tile_m = first + program % in_band % height
    tile_n = program % in_band // height

    blocks: tl.constexpr = K // GROUP_K
    row = tile_m.to(tl.int64) * BLOCK_M + tl.arange(0, BLOCK_M)
    column = tile_n.to(tl.int64) * BLOCK_N + tl.arange(0, BLOCK_N)
    depth = tl.arange(0, GROUP_K)
    # a row or column beyond the edge reads the last one again: no mask in the loop
    safe_row, safe_column = tl.minimum(row, m - 1), tl.minimum(column, n - 1)
    a_at = a + safe_row[:, None] * K + depth[None, :]
    b_at = b + safe_column[None, :] * K + depth[:, None]
    a_scale_at = a_scales + safe_row * blocks
    one_scale: tl.constexpr = GROUP_N % BLOCK_N == 0  # for all columns of the tile
    if one_scale:
        b_scale_at = b_scales + tile_n.to(tl.int64) * BLOCK_N // GROUP_N * blocks
    else:
        b_scale_at = b_scales + safe_column // GROUP_N * blocks
    acc = tl.zeros((BLOCK_M, BLOCK_N), tl.float32)
    for block in range(blocks):
        product = tl.dot(tl.load(a_at), tl.load(b_at))
        a_scale, b_scale = tl.load(a_scale_at + block), tl.load(b_scale_at + block)
        if one_scale:
            acc += product * (a_scale * b_scale)[:, None]
        else:
            acc += product * (a_scale[:, None] * b_scale[None, :])
        a_at += GROUP_K
        b_at += GROUP_K
    inside = (row < m)[:, None] & (column < n)[None, :]
    tl.store(out + row[:, None] * n + column[None, :], acc.to(out.dtype.element_ty), mask=inside)


def _plan(m, n):
    """Tile sizes, warps and stages: large tiles once there are enough to fill the device."""
    if m <= 16:
        return 16, 32, 4, 5
    if m <= 64:
        return 64, 64, 4, 4
    if triton.cdiv(m, 128) * triton.cdiv(n, 128) < SMS:
        return 64, 128, 4, 4
    return 128, 128, 8, 4


class Model(torch.nn.Module):
    def __init__(self, group_n, group_k):
        super().__init__()
        self.group_n, self.group_k = group_n, group_k

    def forward(self, a, b, a_scales, b_scales):
        a, b = a.contiguous(), b.contiguous()
        a_scales, b_scales = a_scales.contiguous(), b_scales.contiguous()
        (m, k), n = a.shape, b.shape[0]
        out = torch.empty(m, n, dtype=torch.bfloat16, device=a.device)
        if out.numel() == 0:
            return out
        block_m, block_n, warps, stages = _plan(m, n)
        _block_scaled_mm[(triton.cdiv(m, block_m) * triton.cdiv(n, block_n),)](
            a, b, a_scales, b_scales, out, m, n, K=k, GROUP_N=self.group_n, GROUP_K=self.group_k,
            BLOCK_M=block_m, BLOCK_N=block_n, TOGETHER=8, num_warps=warps, num_stages=stages,
        )  # fmt: skip
        return out
