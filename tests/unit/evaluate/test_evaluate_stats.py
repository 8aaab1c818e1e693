"""Medians and their intervals."""

from __future__ import annotations

import math
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from roofmark.evaluate.config import Config
from roofmark.evaluate.performance import known_well
from roofmark.evaluate.stats import half_width, interval_ranks, median_interval
from roofmark.records import Interval


def coverage(count: int, low: int, high: int) -> Fraction:
    """The exact chance that the median lies between the order statistics `low` and `high`, 0-based."""
    inside = sum(math.comb(count, below) for below in range(low + 1, high + 1))
    return Fraction(inside, 2**count)


@pytest.mark.parametrize("count", [6, 7, 10, 15, 16, 31, 50, 149, 150, 400])
def test_the_interval_covers_the_median_and_no_narrower_one_does(count: int) -> None:
    low, high = interval_ranks(count)
    assert low + high == count - 1
    assert coverage(count, low, high) >= Fraction(95, 100)
    assert coverage(count, low + 1, high - 1) < Fraction(95, 100)


@pytest.mark.parametrize("count", range(1, 6))
def test_few_samples_give_their_extremes(count: int) -> None:
    assert interval_ranks(count) == (0, count - 1)


@given(st.lists(st.floats(1e-3, 1e9), min_size=1, max_size=150))
def test_the_median_lies_in_its_interval_whatever_the_order(samples: list[float]) -> None:
    median, interval = median_interval(samples)
    assert interval.low <= median <= interval.high
    assert median_interval(sorted(samples)) == (median, interval)


@given(st.lists(st.floats(1e-3, 1e6), min_size=15, max_size=100))
def test_less_than_half_of_wild_samples_do_not_move_the_median_out_of_the_others(samples: list[float]) -> None:
    wild = [1e12] * ((len(samples) - 1) // 2)
    median, _ = median_interval([*samples, *wild])
    assert min(samples) <= median <= max(samples)


def test_no_samples_are_refused() -> None:
    with pytest.raises(ValueError, match="no samples"):
        median_interval([])


def test_a_width_is_a_share_of_the_median() -> None:
    assert half_width(10.0, Interval(low=9.0, high=12.0)) == pytest.approx(0.15)
    assert half_width(0.0, Interval(low=0.0, high=1.0)) == math.inf


def test_sampling_stops_at_a_share_or_at_the_clock_s_own_steps() -> None:
    config = Config.for_device("cpu").model_copy(update={"target_half_width": 0.05, "target_half_width_us": 2.0})
    assert known_well(100.0, Interval(low=95.0, high=105.0), config)
    assert not known_well(100.0, Interval(low=90.0, high=110.0), config)
    assert known_well(5.0, Interval(low=3.0, high=7.0), config)
