"""Wrong answers to `reshape_and_cache` that must fail, and right ones by another way that must pass."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor

from roofmark.operators.zoo import Candidate

Inputs = Mapping[str, Tensor]
Sizes = dict[str, Any]
Pair = tuple[Tensor, Tensor]

ROWS: tuple[str, ...] = ()  # a row of the output is a block, and slots name blocks by their place


def _scatter(i: Inputs, slots: Tensor | None = None, rows: Callable[[Tensor], Tensor] = lambda x: x) -> Pair:
    """New caches with `rows` of the tokens at the slots that are not negative."""
    slots = i["slot_mapping"] if slots is None else slots
    kept = slots >= 0
    caches = []
    for name in ("key", "value"):
        cache = i[f"{name}_cache"].clone()
        cache.view(-1, *cache.shape[2:])[slots[kept]] = rows(i[name])[kept].to(cache.dtype)
        caches.append(cache)
    return caches[0], caches[1]


def _at(change: Callable[[Tensor, int], Tensor]) -> Candidate:
    """Other slots than the given ones; `change` has the slots and how many the pool has."""

    def candidate(i: Inputs, s: Sizes) -> Pair:
        count = i["key_cache"].shape[0] * s["block_size"]
        return _scatter(i, change(i["slot_mapping"], count))

    return candidate


def _of(change: Callable[[Tensor], Tensor]) -> Candidate:
    """Other rows than the given ones."""
    return lambda i, s: _scatter(i, rows=change)


def _one_written(i: Inputs, s: Sizes, *, key: bool) -> Pair:
    keys, values = _scatter(i)
    return (keys, i["value_cache"]) if key else (i["key_cache"], values)


def _swapped(i: Inputs, s: Sizes) -> Pair:
    made = {**i, "key": i["value"], "value": i["key"]}
    return _scatter(made)


def _rest(i: Inputs, s: Sizes, *, of: str) -> Pair:
    """Slots that no token goes to do not stay: zeroed, or taken from the other cache."""
    empty = {name: torch.zeros_like(i[name]) for name in ("key_cache", "value_cache")}
    other = {"key_cache": i["value_cache"], "value_cache": i["key_cache"]}
    return _scatter({**i, **(empty if of == "zeros" else other)})


def _touched_blocks_cleared(i: Inputs, s: Sizes) -> Pair:
    blocks = i["slot_mapping"].clamp(min=0) // s["block_size"]
    made = dict(i)
    for name in ("key_cache", "value_cache"):
        made[name] = i[name].clone()
        made[name][blocks] = 0.0
    return _scatter(made)


def _fp8(x: Tensor) -> Tensor:
    return x.to(torch.float8_e4m3fn)


def _last_bit_cut(x: Tensor) -> Tensor:
    return (x.view(torch.int16) >> 1 << 1).view(x.dtype)


WRONG: dict[str, Candidate] = {
    "slots ignored": _at(lambda slots, n: torch.arange(len(slots))),
    "next slot": _at(lambda slots, n: (slots + 1) % n),
    "slots in reverse": _at(lambda slots, n: n - 1 - slots),
    "places in a block in reverse": _at(lambda slots, n: slots // 16 * 16 + 15 - slots % 16),
    "blocks in reverse": _at(lambda slots, n: (n // 16 - 1 - slots // 16) * 16 + slots % 16),
    "last token left out": _at(lambda slots, n: torch.cat([slots[:-1], slots[-1:] * 0 - 1])),
    "rows of other tokens": lambda i, s: _scatter(i, rows=lambda x: x.roll(1, 0)) if s["shape"][0] > 1 else None,
    "nothing written": lambda i, s: (i["key_cache"], i["value_cache"]),
    "keys alone": lambda i, s: _one_written(i, s, key=True),
    "values alone": lambda i, s: _one_written(i, s, key=False),
    "keys and values swapped": _swapped,
    "heads shifted": _of(lambda x: x.roll(1, 1)),
    "heads and elements swapped": _of(lambda x: x.transpose(1, 2).reshape(x.shape)),
    "last element left out": _of(lambda x: torch.cat([x[..., :-1], x[..., -1:] * 0], dim=-1)),
    "other slots zeroed": lambda i, s: _rest(i, s, of="zeros"),
    "other slots from the other cache": lambda i, s: _rest(i, s, of="other"),
    "touched blocks cleared": _touched_blocks_cleared,
    "rows in fp8": _of(_fp8),
    "last bit cut": _of(_last_bit_cut),
}


def _index_copy(i: Inputs, s: Sizes) -> Pair:
    slots = i["slot_mapping"]
    kept = (slots >= 0).nonzero().flatten()
    keys, values = (
        i[f"{n}_cache"].flatten(0, 1).index_copy(0, slots[kept], i[n][kept]).view(i["key_cache"].shape)
        for n in ("key", "value")
    )
    return keys, values


def _gather(i: Inputs, s: Sizes) -> Pair:
    """Each slot looks for its token; padding lands in a slot past the last."""
    count = i["key_cache"].shape[0] * s["block_size"]
    slots = torch.where(i["slot_mapping"] < 0, count, i["slot_mapping"])
    token = torch.zeros(count + 1, dtype=torch.int64)
    token[slots] = torch.arange(1, len(slots) + 1)
    found = token[:-1].view(-1, s["block_size"], 1, 1)
    keys, values = (
        torch.where(found > 0, i[n][found[..., 0, 0].clamp(min=1) - 1], i[f"{n}_cache"]) for n in ("key", "value")
    )
    return keys, values


RIGHT: dict[str, Candidate] = {
    "blocks and places": lambda i, s: _scatter(i),
    "index_copy": _index_copy,
    "each slot gathers": _gather,
}

WRONG_ON_CORNERS: dict[tuple[str, str], Candidate] = {
    ("padded", "padding to the last slot"): _at(lambda slots, n: slots % n),
    ("padded", "padding to slot 0"): _at(lambda slots, n: slots.clamp(min=0)),
    ("padded", "nothing after the first padding"): _at(
        lambda slots, n: torch.where((slots < 0).cumsum(0) > 0, -1, slots)
    ),
    ("all_padded", "padding to slot 0"): _at(lambda slots, n: slots.clamp(min=0)),
    ("ends", "slot 0 taken for padding"): _at(lambda slots, n: torch.where(slots == 0, -1, slots)),
    ("ends", "last slot left out"): _at(lambda slots, n: torch.where(slots == n - 1, -1, slots)),
    ("large", "rows in fp16"): _of(lambda x: x.half()),
}
