"""Wrong answers to `moe_align_block_size` that must fail, and right ones by another way that must pass."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor

from roofmark.operators.zoo import Candidate

Inputs = Mapping[str, Tensor]
Sizes = dict[str, Any]
Three = tuple[Tensor, Tensor, Tensor]

ROWS: tuple[str, ...] = ()  # every slot's place depends on all others


def _places(s: Sizes) -> int:
    slots = s["token_count"] * s["top_k"]
    places = slots + s["num_experts"] * (s["block_size"] - 1)
    return int(min(places, slots * s["block_size"]) if slots < s["num_experts"] else places)


def _blocks_of(counts: Tensor, s: Sizes) -> Tensor:
    blocks: Tensor = -(-counts // s["block_size"])
    return blocks


def _pack(
    i: Inputs,
    s: Sizes,
    *,
    order: Callable[[Tensor], Tensor] = lambda e: torch.argsort(e, stable=True),
    blocks_of: Callable[[Tensor, Sizes], Tensor] = _blocks_of,
    padding: int | None = None,
) -> Three:
    """The answer with the slots in `order`, `blocks_of` blocks an expert, and `padding`, cut to the buffers."""
    experts = i["topk_ids"].flatten().long()
    slots, b = len(experts), s["block_size"]
    counts = torch.bincount(experts, minlength=s["num_experts"])
    blocks = blocks_of(counts, s)
    by_expert = order(experts)
    before = (blocks.cumsum(0) - blocks) * b - (counts.cumsum(0) - counts)
    place = torch.arange(slots) + before[experts.sort().values]
    size = _places(s)
    sorted_ids = torch.full((max(size, int(place.max()) + 1),), slots if padding is None else padding)
    sorted_ids[place] = by_expert
    owners = torch.arange(s["num_experts"]).repeat_interleave(blocks)
    expert_ids = torch.zeros(max(-(-size // b), len(owners)), dtype=torch.int64)
    expert_ids[: len(owners)] = owners
    total = (blocks.sum() * b).view(1)
    return sorted_ids[:size].int(), expert_ids[: -(-size // b)].int(), total.int()


def _right(i: Inputs, s: Sizes) -> Three:
    return _pack(i, s)


def _changed(change: Callable[[Tensor, Tensor, Tensor], tuple[Tensor, Tensor, Tensor]]) -> Candidate:
    """The right outputs changed; None where that leaves them as they are."""

    def candidate(i: Inputs, s: Sizes) -> Three | None:
        right = _right(i, s)
        a, b, c = (x.int() for x in change(*right))
        return None if all(map(torch.equal, right, (a, b, c))) else (a, b, c)

    return candidate


def _slots(i: Inputs) -> int:
    return i["topk_ids"].numel()


def _grouped_without_padding(i: Inputs, s: Sizes) -> Three:
    _, experts, total = _right(i, s)
    sorted_ids = torch.full((_places(s),), _slots(i), dtype=torch.int32)
    sorted_ids[: _slots(i)] = torch.argsort(i["topk_ids"].flatten(), stable=True).int()
    return sorted_ids, experts, total


def _padding_first(i: Inputs, s: Sizes) -> Three:
    sorted_ids, experts, total = _right(i, s)
    used = int(total)
    blocks = sorted_ids[:used].view(-1, s["block_size"]).flip(1)
    return torch.cat([blocks.flatten(), sorted_ids[used:]]), experts, total


def _tokens_for_slots(i: Inputs, s: Sizes) -> Three:
    sorted_ids, experts, total = _right(i, s)
    return torch.where(sorted_ids < _slots(i), sorted_ids // s["top_k"], sorted_ids), experts, total


def _one_slot_lost(i: Inputs, s: Sizes) -> Three:
    sorted_ids, experts, total = _right(i, s)
    sorted_ids[sorted_ids == _slots(i) - 1] = _slots(i)
    return sorted_ids, experts, total


def _one_slot_twice(i: Inputs, s: Sizes) -> Three:
    """A slot of an expert that has several is there twice, another not; of any expert where all have one."""
    experts = i["topk_ids"].flatten()
    sorted_ids, owners, total = _right(i, s)
    often = torch.bincount(experts.long()).argmax()
    first, last = (experts == often).nonzero().flatten()[[0, -1]]
    sorted_ids[sorted_ids == first] = int(last) if first != last else (int(first) + 1) % len(experts)
    return sorted_ids, owners, total


def _slots_swapped(i: Inputs, s: Sizes) -> Three:
    """The first slots of two experts are swapped."""
    sorted_ids, experts, total = _right(i, s)
    other = int((experts != experts[0]).nonzero()[0]) * s["block_size"]
    sorted_ids[[0, other]] = sorted_ids[[other, 0]]
    return sorted_ids, experts, total


def _half_blocks(i: Inputs, s: Sizes) -> Three:
    right = _right(i, s)
    made = _pack(i, {**s, "block_size": s["block_size"] // 2})
    fills = (_slots(i), 0, 0)
    a, b, c = (
        torch.cat([x, x.new_full((len(y),), fill)])[: len(y)] for x, y, fill in zip(made, right, fills, strict=True)
    )
    return a, b, c


def _total(change: Callable[[Inputs, Sizes], int]) -> Candidate:
    def candidate(i: Inputs, s: Sizes) -> Three | None:
        sorted_ids, experts, total = _right(i, s)
        changed = change(i, s)
        return None if changed == int(total) else (sorted_ids, experts, torch.tensor([changed], dtype=torch.int32))

    return candidate


WRONG: dict[str, Candidate] = {
    "not grouped": lambda i, s: _pack(i, s, order=lambda e: torch.arange(len(e))),
    "largest expert first": lambda i, s: _pack(i, s, order=lambda e: torch.argsort(e, descending=True)),
    "without padding": _grouped_without_padding,
    "padding first": _padding_first,
    "padding of 0": lambda i, s: _pack(i, s, padding=0),
    "padding of -1": lambda i, s: _pack(i, s, padding=-1),
    "padding past it": lambda i, s: _pack(i, s, padding=_slots(i) + 1),
    "blocks of half the size": _half_blocks,
    "idle experts have a block": lambda i, s: _pack(i, s, blocks_of=lambda n, s: _blocks_of(n, s).clamp(min=1)),
    "a block more for each": lambda i, s: _pack(i, s, blocks_of=lambda n, s: _blocks_of(n, s) + (n > 0)),
    "tokens for slots": _tokens_for_slots,
    "last slot lost": _one_slot_lost,
    "a slot twice": _one_slot_twice,
    "two slots swapped": _slots_swapped,
    "slots from 1": _changed(lambda ids, experts, total: (ids + 1, experts, total)),
    "experts of blocks in order": _changed(lambda ids, experts, total: (ids, torch.arange(len(experts)), total)),
    "experts of blocks from 1": _changed(lambda ids, experts, total: (ids, experts + 1, total)),
    "first expert for all blocks": _changed(lambda ids, experts, total: (ids, experts[:1].expand_as(experts), total)),
    "next block's expert": _changed(lambda ids, experts, total: (ids, experts.roll(-1), total)),
    "number without padding": _total(lambda i, s: _slots(i)),
    "number of blocks": _total(lambda i, s: int(_right(i, s)[2]) // s["block_size"]),
    "number of places": _total(lambda i, s: _places(s)),
    "slots shifted inside a token": lambda i, s: _pack({"topk_ids": i["topk_ids"].roll(1, -1)}, s),
    "experts modulo 64": lambda i, s: _pack({"topk_ids": i["topk_ids"] % 64}, s),
}


def _by_atomics(i: Inputs, s: Sizes) -> Three:
    """The slots of an expert in an order by chance."""
    shuffled = torch.randperm(_slots(i), generator=torch.Generator().manual_seed(1), device="cpu").to(
        i["topk_ids"].device
    )
    return _pack(i, s, order=lambda e: shuffled[torch.argsort(e[shuffled], stable=True)])


def _by_ranks(i: Inputs, s: Sizes) -> Three:
    """Counts and ranks from a table of slots and experts, blocks expert by expert."""
    experts = i["topk_ids"].flatten().long()
    hot = torch.nn.functional.one_hot(experts, s["num_experts"])
    counts, b = hot.sum(0).tolist(), s["block_size"]
    sorted_ids = torch.full((_places(s),), len(experts), dtype=torch.int32)
    expert_ids = torch.zeros(-(-_places(s) // b), dtype=torch.int32)
    end = 0
    for expert, count in enumerate(counts):
        sorted_ids[end : end + count] = (experts == expert).nonzero().flatten().int()
        blocks = -(-count // b)
        expert_ids[end // b : end // b + blocks] = expert
        end += blocks * b
    return sorted_ids, expert_ids, torch.tensor([end], dtype=torch.int32)


RIGHT: dict[str, Candidate] = {
    "stable": _right,
    "slots of an expert in reverse": lambda i, s: _pack(
        i, s, order=lambda e: torch.argsort((e + 1) * len(e) - torch.arange(len(e)))
    ),
    "slots of an expert by chance": _by_atomics,
    "expert by expert": _by_ranks,
}


def _repeats_dropped(i: Inputs, s: Sizes) -> Three:
    sorted_ids, experts, total = _right(i, s)
    first = torch.where(sorted_ids % s["top_k"] == 0, sorted_ids, _slots(i))
    return first.int(), experts, total


WRONG_ON_CORNERS: dict[tuple[str, str], Candidate] = {
    ("full_blocks", "a block more behind a full one"): lambda i, s: _pack(
        i, s, blocks_of=lambda n, s: n // s["block_size"] + (n > 0)
    ),
    ("one_over", "at most a block for each"): lambda i, s: _pack(
        i, s, blocks_of=lambda n, s: _blocks_of(n, s).clamp(max=1)
    ),
    ("repeated", "repeats dropped"): _repeats_dropped,
    ("in_order", "experts of blocks from 1"): WRONG["experts of blocks from 1"],
}
