"""Stand-ins, neighbours, corner cases and streams keep their rules."""

from __future__ import annotations

import random
from typing import Any

import pytest
import torch
from operator_check import NAMES, SEED, cost, small_sizes

from roofmark import operators
from roofmark.operators import Operator, Sizes
from roofmark.operators.draw import Draw, chunks, near

SECONDS = 0.1
FLOOR = 257
# Eager temporaries, mostly float32, against the compulsory bytes.
BYTES, TEMPORARIES = 1e9, 8


def _count(name: str, sizes: Sizes) -> int:
    """The tokens, rows, sequences or length that a stand-in lowers."""
    if name == "silu_and_mul":
        return int(sizes["shape"][0])
    if name == "attention_forward":
        return int(sum(sizes["seq_lens"]))
    return int(sizes[{"block_scaled_mm": "m", "paged_attention_decode": "num_seqs"}.get(name, "token_count")])


def _length(name: str, sizes: Sizes) -> int:
    """The count that both neighbours change."""
    return int(sizes["ctx_len"]) if name == "paged_attention_decode" else _count(name, sizes)


def _fixed(name: str, sizes: Sizes) -> dict[str, Any]:
    """All that a stand-in must keep."""
    if name == "silu_and_mul":
        return {"width": sizes["shape"][1]}
    lowered = {"token_count", "m", "num_seqs", "seq_lens"}
    return {key: value for key, value in sizes.items() if key not in lowered}


@pytest.mark.parametrize("name", NAMES)
def test_a_stand_in_lowers_counts_alone_and_no_more_than_it_must(name: str) -> None:
    operator = operators.load(name)
    for shape in operator.shapes:
        sizes, full = small_sizes(shape), _count(name, shape.sizes)
        count = _count(name, sizes)
        assert operator.work(sizes).bytes_total * TEMPORARIES < BYTES or count <= FLOOR
        if shape.stand_in is None:
            assert cost(operator, sizes) <= SECONDS or full <= FLOOR
            continue
        assert set(shape.stand_in) <= set(shape.dims)
        assert _fixed(name, sizes) == _fixed(name, shape.sizes)
        assert FLOOR <= count < full
        assert count % 2 == 1
        assert cost(operator, shape.sizes) > SECONDS
        assert cost(operator, sizes) <= SECONDS or count == FLOOR
        assert cost(operator, sizes) > 0.95 * SECONDS or count == FLOOR


def _dearer(operator: Operator, sizes: Sizes, than: Sizes) -> float:
    """How many times the work, in bytes or FLOPs, of other sizes."""
    one, other = operator.work(sizes), operator.work(than)
    flops = [sum(work.flops.values()) for work in (one, other)]
    return max(one.bytes_total / other.bytes_total, flops[0] / flops[1])


@pytest.mark.parametrize("name", NAMES)
def test_neighbours_are_new_and_hardly_dearer(name: str) -> None:
    operator = operators.load(name)
    for shape in operator.shapes:
        for these in (shape.sizes, small_sizes(shape)):
            pairs = [operator.neighbours(these, random.Random(seed)) for seed in range(8)]
            assert len({str(pair) for pair in pairs}) > 1
            for sizes in (one for pair in pairs for one in pair):
                assert sizes != these
                assert set(sizes) == set(these)
                # attention grows with the square of 17/16; a handful of rows may become nine
                assert _dearer(operator, sizes, these) < 1.13 or operator.work(sizes).bytes_total < 6 << 20


@pytest.mark.parametrize("name", NAMES)
def test_the_first_neighbour_is_about_as_large_as_the_shape_and_the_second_small(name: str) -> None:
    operator = operators.load(name)
    for shape in operator.shapes:
        full = _length(name, shape.sizes)
        for seed in range(8):
            first, second = operator.neighbours(shape.sizes, random.Random(seed))
            close, small = _length(name, first), _length(name, second)
            assert close % 2 == 1
            assert close != full
            assert full - max(4, full / 8) <= close <= max(9, full * 17 / 16)
            assert small <= max(9, 1.25 * min(full, 641))


@pytest.mark.parametrize("name", NAMES)
def test_corner_cases_are_small_and_keep_what_is_fixed(name: str) -> None:
    operator = operators.load(name)
    for shape in operator.shapes:
        corners = operator.corners(shape.sizes)
        assert {"tail"} < set(corners)
        for corner, sizes in corners.items():
            assert set(sizes) == set(shape.sizes)
            assert _fixed(name, {**sizes, "ctx_len": 0}) == _fixed(name, {**shape.sizes, "ctx_len": 0}) or (
                name == "paged_attention_decode"
            )
            if corner == "ragged_full":
                assert operator.outputs(sizes) == operator.outputs(shape.sizes)
                assert _dearer(operator, sizes, shape.sizes) < 1.01 or _count(name, sizes) == 1
            else:
                assert _count(name, sizes) <= 131


@pytest.mark.parametrize("name", NAMES)
def test_inputs_follow_from_the_seed_alone_and_differ_between_seeds(name: str) -> None:
    operator = operators.load(name)
    sizes = operator.corners(operator.shapes[0].sizes)["tail"]
    first, again, other = (operator.make_inputs(sizes, seed=s, device="cpu") for s in (SEED, SEED, SEED + 2**100))
    for key, value in first.items():
        assert torch.equal(value.view(torch.uint8), again[key].view(torch.uint8))
        assert value.is_contiguous()
        fixed = key in ("cu_seqlens", "context_lens")
        assert fixed == torch.equal(value.view(torch.uint8), other[key].view(torch.uint8))


def test_bits_are_even_and_streams_do_not_meet() -> None:
    draw = Draw(2**128 - 1, "cpu")
    assert draw.bits("a", (5, 3), torch.uint8).shape == (5, 3)
    bits = draw.bits("a", (1 << 16,), torch.uint8)
    assert torch.bincount(bits.long(), minlength=256).float().sub(256).abs().max() < 100
    assert not torch.equal(bits, draw.bits("b", (1 << 16,), torch.uint8))
    values = draw.between("c", (1 << 16,), 2.0, 6.0)
    assert 2.0 <= values.min() < 2.01
    assert 5.99 < values.max() <= 6.0
    assert draw.permutation("d", 1000).sort().values.equal(torch.arange(1000))


@pytest.mark.parametrize("count", [*range(1, 40), 128, 257, 641, 642, 1000, 65_536, 10**6])
def test_near_counts_are_odd_and_never_the_count(count: int) -> None:
    pairs = [near(random.Random(seed), count) for seed in range(60)]
    for first, second in pairs:
        assert first != second
        assert count not in (first, second)
        assert all(n % 2 and 3 <= n <= max(9, count * 17 / 16) for n in (first, second))
        assert first >= count - max(4, count / 8)
        assert max(3, min(count, 641) // 2) <= second <= max(9, 1.25 * min(count, 641))
    if count >= 128:
        assert min(first for first, _ in pairs) < count * 0.95
        assert max(first for first, _ in pairs) > count * 1.02


def test_chunks_cover_every_row_once() -> None:
    for rows, size in ((0, 1), (1, 1 << 40), (1000, 1 << 20), (7, 0)):
        covered = [n for part in chunks(rows, size) for n in range(rows)[part]]
        assert covered == list(range(rows))


@pytest.mark.parametrize("count", [1, 2, 3, 7, 37, 257, 10_000])
def test_one_row_in_eight_is_special_and_never_the_last(count: int) -> None:
    drawn = torch.stack([Draw(seed, "cpu").kinds("kind", count, 4) for seed in range(64)])
    assert ((drawn >= 0).sum(-1) == (count + 5) // 8).all()
    assert (drawn[:, -1] == -1).all()
    if count > 2:
        assert drawn.unique().tolist() == [-1, 0, 1, 2, 3]
        assert (drawn >= 0).any(0)[: min(count - 1, 36)].all()
    if count > 256:
        assert all(((drawn == kind).sum(-1) >= count // 40).all() for kind in range(4))


def test_ragged_lengths_at_full_size_are_of_all_kinds_and_new_for_each_seed() -> None:
    packed = operators.load("attention_forward")
    sizes = packed.corners(packed.shape("0").sizes)["ragged_full"]
    cuts = [packed.make_corner("ragged_full", sizes, seed=s, device="cpu")["cu_seqlens"] for s in range(4)]
    for cut in cuts:
        lengths = cut.diff().tolist()
        assert {0, 1} <= set(lengths)
        assert sum(lengths) == 720
        assert min(lengths) >= 0
    assert len({tuple(cut.tolist()) for cut in cuts}) == 4
    paged = operators.load("paged_attention_decode")
    for shape in paged.shapes:
        main = paged.make_inputs(shape.sizes, seed=0, device="cpu")
        drawn = [paged.make_corner("ragged_full", shape.sizes, seed=s, device="cpu") for s in range(4)]
        for inputs in drawn:
            lengths = inputs["context_lens"]
            assert {n: t.shape for n, t in inputs.items()} == {n: t.shape for n, t in main.items()}
            assert (lengths % 16 > 0).any()
            assert 0 <= lengths.min() <= lengths.max() <= shape.sizes["ctx_len"]
            assert len(lengths) < 3 or {0, 1} <= set(lengths.tolist())
        assert len({tuple(inputs["context_lens"].tolist()) for inputs in drawn}) == 4
