"""Softmax and top-k of a MoE router for Hopper: the k largest probabilities of each row, largest first.

A logit and its index become one 64-bit key: the order of the float above, the complement of the index below. A
key is unique, so ties and -inf need no care, and one integer maximum finds winner and index at once. Rows stay in
registers, one or more to a warp.
"""

import torch
import triton
import triton.language as tl

SMS = 132


@triton.jit
def _ordered(bits):
    """Float bits to an integer of the same order, and back again."""
    return bits ^ ((bits >> 31) & 0x7FFFFFFF)


@triton.jit(do_not_specialize=["rows"])
def _topk(
    gating, weights, ids, rows, EXPERTS: tl.constexpr, TOP: tl.constexpr, BLOCK: tl.constexpr,
    PLACES: tl.constexpr, ROWS: tl.constexpr,
):  # fmt: skip
    row = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)
    expert = tl.arange(0, BLOCK)[None, :]
    inside = (row < rows)[:, None] & (expert < EXPERTS)
    logits = tl.load(gating + row[:, None] * EXPERTS + expert, mask=inside, other=float("-inf"))
    order = _ordered(logits.to(tl.int32, bitcast=True)).to(tl.int64)
    lowest = tl.full((ROWS, BLOCK), -(1 << 63), tl.int64)
    keys = tl.where(expert < EXPERTS, (order << 32) | (0x7FFFFFFF - expert).to(tl.int64), lowest)
    place = tl.arange(0, PLACES)[None, :]
    values = tl.full((ROWS, PLACES), float("-inf"), tl.float32)
    found = tl.zeros((ROWS, PLACES), tl.int32)
    for k in tl.static_range(TOP):
        best = tl.max(keys, axis=1)
        keys = tl.where(keys == best[:, None], lowest, keys)
        value = _ordered((best >> 32).to(tl.int32)).to(tl.float32, bitcast=True)
        values = tl.where(place == k, value[:, None], values)
        found = tl.where(place == k, (0x7FFFFFFF - (best & 0x7FFFFFFF)).to(tl.int32)[:, None], found)
    top = tl.max(logits, axis=1)[:, None]
    total = tl.sum(tl.where(expert < EXPERTS, tl.exp(logits - top), 0.0), axis=1)[:, None]
    at = row[:, None] * TOP + place
    kept = (row < rows)[:, None] & (place < TOP)
    tl.store(weights + at, tl.exp(values - top) / total, mask=kept)
    tl.store(ids + at, found, mask=kept)


class Model(torch.nn.Module):
    def __init__(self, top_k):
        super().__init__()
        self.top_k = top_k

    def forward(self, gating):
        gating = gating.contiguous()
        rows, experts = gating.shape
        weights = gating.new_empty(rows, self.top_k)
        ids = torch.empty(rows, self.top_k, dtype=torch.int32, device=gating.device)
        if rows == 0:
            return weights, ids
        shared = min(8, triton.next_power_of_2(triton.cdiv(rows, 4 * SMS)))
        _topk[(triton.cdiv(rows, shared),)](
            gating, weights, ids, rows, EXPERTS=experts, TOP=self.top_k, BLOCK=triton.next_power_of_2(experts),
            PLACES=triton.next_power_of_2(self.top_k), ROWS=shared, num_warps=min(4, shared),
        )  # fmt: skip
        return weights, ids
