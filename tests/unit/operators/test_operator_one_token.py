"""Inputs of single tokens matter on every seed, and routing is distinct and uneven."""

from __future__ import annotations

import pytest
import torch

from roofmark import operators
from roofmark.operators import routing
from roofmark.operators.draw import Draw
from roofmark.operators.experts import touched

SEEDS = range(400)


def test_routing_is_distinct_uneven_and_leaves_some_experts_idle() -> None:
    ids = routing.with_idle(Draw(3, "cpu"), 2048, 128, 8)
    assert ids.dtype == torch.int32
    assert (ids.sort(dim=-1).values.diff(dim=-1) > 0).all()
    counts = torch.bincount(ids.flatten(), minlength=128).sort().values
    assert counts[7] == 0 < counts[8]
    assert counts[-8:].sum() > 3 * counts[56:64].sum()
    assert not torch.equal(ids, routing.with_idle(Draw(4, "cpu"), 2048, 128, 8))
    assert routing.with_idle(Draw(3, "cpu"), 5, 8, 8).sort(dim=-1).values.tolist() == [list(range(8))] * 5


@pytest.mark.parametrize("tokens", [1, 3, 32, 2048])
def test_routing_touches_as_many_experts_as_the_work_counts(tokens: int) -> None:
    used = touched(tokens, 128, 8)
    ids = routing.choose(Draw(5, "cpu"), tokens, 128, 8, used)
    assert len(ids.unique()) == used
    assert (ids.sort(dim=-1).values.diff(dim=-1) > 0).all()


def test_one_token_s_slots_are_never_in_order_nor_end_at_zero() -> None:
    operator = operators.load("moe_count_and_sort")
    for seed in SEEDS:
        ids = operator.make_inputs(operator.shapes[0].sizes, seed=seed, device="cpu")["topk_ids"]
        assert len(set(ids[0].tolist())) == 8
        order = ids[0].argsort().tolist()
        assert order != sorted(order)
        assert order[-1] != 0
        assert ids.max() == 127


def test_one_token_never_goes_to_slot_0_nor_lies_near_position_0() -> None:
    cache, rope = operators.load("reshape_and_cache"), operators.load("fused_qkv_rope")
    slots, positions = set(), set()
    for seed in SEEDS:
        slots.add(int(cache.make_inputs(cache.shapes[0].sizes, seed=seed, device="cpu")["slot_mapping"]))
        positions.add(int(rope.make_inputs(rope.shapes[0].sizes, seed=seed, device="cpu")["positions"]))
    assert 0 not in slots
    assert len(slots) > 250
    assert min(positions) >= 1024
    assert max(positions) < 8192
    assert len(positions) > 350
