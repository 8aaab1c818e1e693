"""GQA decode over a paged cache for Hopper, bf16 or fp16.

A program takes one (sequence, kv head, stretch of the context): the query heads of the group are the rows of a
tensor-core tile, filled up to 16, so that keys and values are read once for all of them. Where sequences and heads
are too few for the device, the context is cut, and a second kernel joins the parts. Pages are loaded whole, with
masks that are constant over a page: only then does the compiler load 16 bytes a thread.
"""

import torch
import triton
import triton.language as tl

SMS = 132
PAGE = 16


@triton.jit(do_not_specialize=["limit"])
def _decode(
    query, key_cache, value_cache, tables, lengths, out, parts, tops, limit, stretch, scale,
    KV_HEADS: tl.constexpr, GROUP: tl.constexpr, SIZE: tl.constexpr, ROWS: tl.constexpr,
    D: tl.constexpr, BLOCK: tl.constexpr, SPLITS: tl.constexpr,
):  # fmt: skip
    """`out` where SPLITS is 1, else its share: unscaled sums in `parts`, running maximum and sum in `tops`."""
    sequence, head, split = tl.program_id(0).to(tl.int64), tl.program_id(1), tl.program_id(2)
    length = tl.load(lengths + sequence)
    begin = split * stretch
    end = tl.minimum(length, begin + stretch)
    row, place, token = tl.arange(0, ROWS), tl.arange(0, D), tl.arange(0, BLOCK)
    mine = (row < GROUP)[:, None] & (place < SIZE)[None, :]
    line = (sequence * KV_HEADS + head) * GROUP + row
    q = tl.load(query + line[:, None] * SIZE + place[None, :], mask=mine, other=0.0)
    acc = tl.zeros((ROWS, D), tl.float32)
    total = tl.zeros((ROWS,), tl.float32)
    top = tl.full((ROWS,), float("-inf"), tl.float32)
    table = tables + sequence * limit
    key_place = place // 8 * (8 * 16) + place % 8
    for at in range(begin, end, BLOCK):
        page, slot = (at + token) // 16, (at + token) % 16
        there = page < (end + 15) // 16
        block = tl.load(table + page, mask=there, other=0).to(tl.int64)
        base = (block * KV_HEADS + head) * (SIZE * 16)
        k = tl.load(
            key_cache + (base + slot * 8)[None, :] + key_place[:, None],
            mask=there[None, :] & (place < SIZE)[:, None], other=0.0,
        )  # fmt: skip
        v = tl.load(
            value_cache + (base + slot)[:, None] + (place * 16)[None, :],
            mask=there[:, None] & (place < SIZE)[None, :], other=0.0,
        )  # fmt: skip
        valid = at + token < end
        scores = tl.where(valid[None, :], tl.dot(q, k) * scale, float("-inf"))
        v = tl.where(valid[:, None], v, 0.0)  # a free slot may hold anything, NaN too
        best = tl.maximum(top, tl.max(scores, axis=1))
        weights = tl.exp2(scores - best[:, None])
        shrink = tl.exp2(top - best)
        acc = tl.dot(weights.to(v.dtype), v, acc * shrink[:, None])
        total = total * shrink + tl.sum(weights, axis=1)
        top = best
    if SPLITS == 1:
        value = tl.where(length > 0, acc / total[:, None], 0.0).to(out.dtype.element_ty)
        tl.store(out + line[:, None] * SIZE + place[None, :], value, mask=mine)
    else:
        part = line * SPLITS + split
        tl.store(parts + part[:, None] * SIZE + place[None, :], acc, mask=mine)
        tl.store(tops + part * 2, top, mask=row < GROUP)
        tl.store(tops + part * 2 + 1, total, mask=row < GROUP)


@triton.jit
def _join(parts, tops, out, SIZE: tl.constexpr, D: tl.constexpr, SPLITS: tl.constexpr, PADDED: tl.constexpr):
    line = tl.program_id(0).to(tl.int64)
    split, place = tl.arange(0, PADDED), tl.arange(0, D)
    part = line * SPLITS + split
    top = tl.load(tops + part * 2, mask=split < SPLITS, other=float("-inf"))
    total = tl.load(tops + part * 2 + 1, mask=split < SPLITS, other=0.0)
    best = tl.max(top, axis=0)
    share = tl.where(top > float("-inf"), tl.exp2(top - best), 0.0)
    mine = (split < SPLITS)[:, None] & (place < SIZE)[None, :]
    sums = tl.load(parts + part[:, None] * SIZE + place[None, :], mask=mine, other=0.0)
    whole = tl.sum(share * total, axis=0)
    value = tl.where(whole > 0, tl.sum(sums * share[:, None], axis=0) / whole, 0.0)
    tl.store(out + line * SIZE + place, value.to(out.dtype.element_ty), mask=place < SIZE)


def _splits(programs, longest, block):
    """In how many stretches to cut the context, and how long each is: two programs an SM, at least 4 tiles each."""
    wanted = max(1, min(2 * SMS // programs, triton.cdiv(longest, 4 * block), 64))
    stretch = triton.cdiv(triton.cdiv(longest, wanted), block) * block
    return triton.cdiv(longest, stretch), stretch


class Model(torch.nn.Module):
    def forward(self, query, key_cache, value_cache, block_tables, context_lens):
        query, tables, lengths = query.contiguous(), block_tables.contiguous(), context_lens.contiguous()
        key_cache, value_cache = key_cache.contiguous(), value_cache.contiguous()
        out = torch.empty_like(query)
        (sequences, heads, size), kv_heads, limit = query.shape, key_cache.shape[1], tables.shape[1]
        if sequences == 0:
            return out
        if limit == 0:
            return out.zero_()
        width, block = max(16, triton.next_power_of_2(size)), 64
        splits, stretch = _splits(sequences * kv_heads, limit * PAGE, block)
        f32 = {"dtype": torch.float32, "device": query.device}
        parts = torch.empty(sequences * heads * splits * size if splits > 1 else 1, **f32)
        tops = torch.empty(sequences * heads * splits * 2 if splits > 1 else 1, **f32)
        group = heads // kv_heads
        scale = size**-0.5 * 1.4426950408889634  # exp2 instead of exp
        _decode[(sequences, kv_heads, splits)](
            query, key_cache, value_cache, tables, lengths, out, parts, tops, limit, stretch, scale,
            KV_HEADS=kv_heads, GROUP=group, SIZE=size, ROWS=max(16, triton.next_power_of_2(group)), D=width,
            BLOCK=block, SPLITS=splits, num_warps=8 if width > 128 else 4, num_stages=2 if width > 128 else 3,
        )  # fmt: skip
        if splits > 1:
            _join[(sequences * heads,)](
                parts, tops, out, SIZE=size, D=width, SPLITS=splits, PADDED=triton.next_power_of_2(splits)
            )
        return out
