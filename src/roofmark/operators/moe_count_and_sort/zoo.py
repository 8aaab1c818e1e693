"""Wrong answers to `moe_count_and_sort` that must fail, and right ones by another way that must pass."""

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


def _experts(i: Inputs) -> Tensor:
    return i["topk_ids"].flatten().long()


def _right(i: Inputs, s: Sizes) -> Three:
    counts = torch.bincount(_experts(i), minlength=s["num_experts"])
    cumsum = torch.cat([torch.zeros(1, dtype=torch.int64), counts.cumsum(0)])
    return torch.argsort(_experts(i), stable=True).int(), counts.int(), cumsum.int()


def _order(change: Callable[[Tensor, Tensor], Tensor]) -> Candidate:
    """Another order; `change` has the experts and the right order. None where it is the same."""

    def candidate(i: Inputs, s: Sizes) -> Three | None:
        order, counts, cumsum = _right(i, s)
        changed = change(_experts(i), order.long()).int()
        return None if torch.equal(changed, order) else (changed, counts, cumsum)

    return candidate


def _counts(change: Callable[[Tensor, Sizes], Tensor]) -> Candidate:
    def candidate(i: Inputs, s: Sizes) -> Three:
        order, counts, cumsum = _right(i, s)
        return order, change(counts, s).int(), cumsum

    return candidate


def _sums(change: Callable[[Tensor, Tensor], Tensor]) -> Candidate:
    """Other sums; `change` has the counts and the right sums."""

    def candidate(i: Inputs, s: Sizes) -> Three:
        order, counts, cumsum = _right(i, s)
        return order, counts, change(counts, cumsum).int()

    return candidate


def _of(change: Callable[[Tensor], Tensor]) -> Candidate:
    """The right answer for other experts."""
    return lambda i, s: _right({"topk_ids": change(i["topk_ids"])}, s)


def _padded_sums(counts: Tensor, cumsum: Tensor) -> Tensor:
    return torch.cat([cumsum[:1], ((counts + 127) // 128 * 128).cumsum(0)])


WRONG: dict[str, Candidate] = {
    "not sorted": _order(lambda e, order: torch.arange(len(order))),
    "largest expert first": _order(lambda e, order: torch.argsort(e, descending=True, stable=True)),
    "last slot of an expert first": _order(lambda e, order: torch.argsort((e + 1) * len(e) - torch.arange(len(e)))),
    "places for slots": _order(lambda e, order: torch.argsort(order)),
    "experts for slots": _order(lambda e, order: e[order]),
    "tokens for slots": _order(lambda e, order: order // 8),
    "last two slots swapped": _order(lambda e, order: torch.cat([order[:-2], order[-2:].flip(0)])),
    "first slot twice": _order(lambda e, order: torch.cat([order[:1], order[:1], order[2:]])),
    "slots from 1": _order(lambda e, order: order + 1),
    "counts twice": _counts(lambda counts, s: counts * 2),
    "counts of the next expert": _counts(lambda counts, s: counts.roll(1)),
    "one slot not counted": _counts(lambda counts, s: counts - (torch.arange(len(counts)) == counts.argmax()).int()),
    "counts padded": _counts(lambda counts, s: (counts + 127) // 128 * 128),
    "mean count": _counts(lambda counts, s: counts * 0 + counts.sum() // s["num_experts"] + 1),
    "sums with their own": _sums(lambda counts, cumsum: torch.cat([cumsum[1:], cumsum[-1:]])),
    "last sum left out": _sums(lambda counts, cumsum: torch.cat([cumsum[:-1], cumsum[-1:] * 0])),
    "sums of padded counts": _sums(_padded_sums),
    "counts for sums": _sums(lambda counts, cumsum: torch.cat([cumsum[:1], counts])),
    "last token in reverse": _of(lambda ids: torch.cat([ids[:-1], ids[-1:].flip(1)])),
    "ids column by column": lambda i, s: _right({"topk_ids": i["topk_ids"].T}, s) if s["token_count"] > 1 else None,
    "experts modulo 64": _of(lambda ids: ids % 64),
}


def _by_ranks(i: Inputs, s: Sizes) -> Three:
    """The place of a slot: the slots of smaller experts, and those before it of its own."""
    experts = _experts(i)
    hot = torch.nn.functional.one_hot(experts, s["num_experts"])
    counts = hot.sum(0)
    begin = counts.cumsum(0) - counts
    place = begin[experts] + hot.cumsum(0)[torch.arange(len(experts)), experts] - 1
    order = torch.empty_like(place)
    order[place] = torch.arange(len(experts))
    return order.int(), counts.int(), torch.cat([begin, counts.sum().view(1)]).int()


RIGHT: dict[str, Candidate] = {"library": _right, "by ranks": _by_ranks}


def _last_expert_dropped(i: Inputs, s: Sizes) -> Three:
    order, counts, cumsum = _right(i, s)
    return order, torch.cat([counts[:-1], counts[-1:] * 0]), cumsum


def _repeats_counted_once(i: Inputs, s: Sizes) -> Three:
    order, _, cumsum = _right(i, s)
    chosen = torch.zeros(len(i["topk_ids"]), s["num_experts"], dtype=torch.int32)
    return order, chosen.scatter(1, i["topk_ids"].long(), 1).sum(0).int(), cumsum


WRONG_ON_CORNERS: dict[tuple[str, str], Candidate] = {
    ("last_experts", "last expert not counted"): _last_expert_dropped,
    ("first_experts", "expert 0 left out"): _counts(lambda counts, s: torch.cat([counts[:1] * 0, counts[1:]])),
    ("repeated", "repeats counted once"): _repeats_counted_once,
    ("same_experts", "last slot of an expert first"): WRONG["last slot of an expert first"],
}
