"""Full attention over packed sequences for Hopper: flash attention, bf16 products, float32 sums.

The host never reads `cu_seqlens`: it launches as many programs as there can be blocks of queries at most, and each
finds its sequence by a running sum of block counts. Only the last tile of keys is masked. A head size that is
no power of two is filled up with zeros in registers, not in memory.
"""

import torch
import triton
import triton.language as tl


@triton.jit
def _find(cu, sequences, program, BLOCK_M: tl.constexpr, SEQUENCES: tl.constexpr):
    """Begin and end of the sequence that block `program` is of, and its first row; begin is -1 past the last."""
    index = tl.arange(0, SEQUENCES)
    there = index < sequences
    begin = tl.load(cu + index, mask=there, other=0)
    end = tl.load(cu + index + 1, mask=there, other=0)
    blocks = (end - begin + BLOCK_M - 1) // BLOCK_M
    until = tl.cumsum(blocks, axis=0)
    mine = there & (until > program) & (until - blocks <= program)
    found = tl.max(mine.to(tl.int32), axis=0)
    first = tl.sum(tl.where(mine, begin + (program - (until - blocks)) * BLOCK_M, 0), axis=0)
    begin = tl.sum(tl.where(mine, begin, 0), axis=0) + found - 1
    return begin, tl.sum(tl.where(mine, end, 0), axis=0), first


@triton.jit
def _step(
    query, acc, total, top, k_at, v_at, left, scale, SIZE: tl.constexpr, D: tl.constexpr,
    BLOCK_N: tl.constexpr, EVEN: tl.constexpr,
):  # fmt: skip
    """One tile of keys and values; `left` rows of it exist unless EVEN."""
    token, place = tl.arange(0, BLOCK_N), tl.arange(0, D)
    if EVEN and SIZE == D:
        k = tl.load(k_at)
    elif EVEN:
        k = tl.load(k_at, mask=(place < SIZE)[:, None], other=0.0)
    else:
        k = tl.load(k_at, mask=(token < left)[None, :] & (place < SIZE)[:, None], other=0.0)
    scores = tl.dot(query, k) * scale
    if not EVEN:
        scores = tl.where((token < left)[None, :], scores, float("-inf"))
    best = tl.maximum(top, tl.max(scores, axis=1))
    weights = tl.exp2(scores - best[:, None])
    shrink = tl.exp2(top - best)
    if EVEN and SIZE == D:
        v = tl.load(v_at)
    elif EVEN:
        v = tl.load(v_at, mask=(place < SIZE)[None, :], other=0.0)
    else:
        v = tl.load(v_at, mask=(token < left)[:, None] & (place < SIZE)[None, :], other=0.0)
    acc = tl.dot(weights.to(v.dtype), v, acc * shrink[:, None])
    return acc, total * shrink + tl.sum(weights, axis=1), best


@triton.jit(do_not_specialize=["sequences"])
def _attention(
    q, k, v, out, cu, sequences, scale, HEADS: tl.constexpr, SIZE: tl.constexpr, D: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, SEQUENCES: tl.constexpr,
):  # fmt: skip
    begin, end, first = _find(cu, sequences, tl.program_id(0), BLOCK_M, SEQUENCES)
    if begin < 0:
        return
    stride: tl.constexpr = HEADS * SIZE
    head = tl.program_id(1) * SIZE
    row, place = tl.arange(0, BLOCK_M), tl.arange(0, D)
    mine = ((first + row) < end)[:, None] & (place < SIZE)[None, :]
    at = head + first.to(tl.int64) * stride + row[:, None] * stride + place[None, :]
    query = tl.load(q + at, mask=mine, other=0.0)
    start = head + begin.to(tl.int64) * stride
    token = tl.arange(0, BLOCK_N)
    k_at = k + start + token[None, :] * stride + place[:, None]
    v_at = v + start + token[:, None] * stride + place[None, :]
    acc = tl.zeros((BLOCK_M, D), tl.float32)
    total = tl.zeros((BLOCK_M,), tl.float32)
    top = tl.full((BLOCK_M,), float("-inf"), tl.float32)
    length = end - begin
    for _ in range(length // BLOCK_N):
        acc, total, top = _step(query, acc, total, top, k_at, v_at, 0, scale, SIZE, D, BLOCK_N, True)
        k_at += BLOCK_N * stride
        v_at += BLOCK_N * stride
    left = length % BLOCK_N
    if left > 0:
        acc, total, top = _step(query, acc, total, top, k_at, v_at, left, scale, SIZE, D, BLOCK_N, False)
    tl.store(out + at, (acc / total[:, None]).to(out.dtype.element_ty), mask=mine)


class Model(torch.nn.Module):
    def forward(self, q, k, v, cu_seqlens):
        q, k, v = q.contiguous(), k.contiguous(), v.contiguous()
        out = torch.empty_like(q)
        rows, heads, size = q.shape
        sequences = cu_seqlens.numel() - 1
        if rows == 0:
            return out
        block_m, block_n = 128, 128 if size > 64 else 64
        blocks = (rows + min(sequences, rows) * (block_m - 1)) // block_m
        scale = size**-0.5 * 1.4426950408889634  # exp2 instead of exp
        _attention[(blocks, heads)](
            q, k, v, out, cu_seqlens, sequences, scale, HEADS=heads, SIZE=size,
            D=max(16, triton.next_power_of_2(size)), BLOCK_M=block_m, BLOCK_N=block_n,
            SEQUENCES=triton.next_power_of_2(sequences), num_warps=8, num_stages=2,
        )  # fmt: skip
        return out
