"""Medians and their intervals, from the samples alone."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from functools import cache

from roofmark.records import Interval

CONFIDENCE = 0.95


@cache
def interval_ranks(count: int, confidence: float = CONFIDENCE) -> tuple[int, int]:
    """The 0-based ranks of the order statistics that enclose the median with at least `confidence`.

    Distribution-free: the number of samples below the median is binomial(count, 1/2).
    With fewer than six samples no pair does, and the extremes come back.
    """
    tail = (1.0 - confidence) / 2.0
    cumulative = 0.0
    rank = 0
    for k in range(count // 2):
        cumulative += math.comb(count, k) * 0.5**count
        if cumulative > tail:
            break
        rank = k
    return rank, count - 1 - rank


def median_interval(samples: Sequence[float]) -> tuple[float, Interval]:
    """The median of `samples` and its interval; `ValueError` where there are none."""
    if not samples:
        raise ValueError("no samples")
    ordered = sorted(samples)
    low, high = interval_ranks(len(ordered))
    return statistics.median(ordered), Interval(low=ordered[low], high=ordered[high])


def half_width(median: float, interval: Interval) -> float:
    """Half of the interval's width as a share of the median."""
    return (interval.high - interval.low) / 2.0 / median if median > 0 else math.inf
