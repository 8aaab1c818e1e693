"""Gate 3: how long does a forward take? Samples behind the gate, until the median is known or never will be."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from roofmark.evaluate.config import Config
from roofmark.evaluate.integrity import Null, between
from roofmark.evaluate.session import Call
from roofmark.evaluate.stats import half_width, median_interval
from roofmark.records import Interval, Timing


@dataclass(frozen=True)
class Samples:
    """The timed calls of one process, and whether their median is known well enough."""

    calls: tuple[Call, ...]
    settled: bool


def collect(call: Callable[[], Call], config: Config, seconds: float, limit_us: float | None) -> Samples:
    """Timed calls until the interval of the median is narrow, the limit is passed for sure, or time is up."""
    calls: list[Call] = []
    started = time.monotonic()
    look = config.min_calls
    for made in _calls(call, config.max_calls):
        calls.append(made)
        median, interval = median_interval([c.us for c in calls])
        if limit_us is not None and len(calls) >= 3 and min(c.us for c in calls) > limit_us:
            return Samples(tuple(calls), settled=True)
        if len(calls) >= look:
            look = len(calls) * 4 // 3  # few looks: to stop at the first narrow one would make it too narrow
            if known_well(median, interval, config):
                return Samples(tuple(calls), settled=True)
        if len(calls) >= config.min_calls and time.monotonic() - started > seconds:
            break
    median, interval = median_interval([c.us for c in calls])
    known = known_well(median, interval, config) or half_width(median, interval) <= config.accepted_half_width
    return Samples(tuple(calls), settled=known)


def known_well(median_us: float, interval: Interval, config: Config) -> bool:
    """Whether an interval is narrow enough, relatively or, for the shortest forwards, by the clock's own steps."""
    narrow_us = (interval.high - interval.low) / 2.0 <= config.target_half_width_us
    return narrow_us or half_width(median_us, interval) <= config.target_half_width


def _calls(call: Callable[[], Call], count: int) -> Iterator[Call]:
    for _ in range(count):
        yield call()


def timing(samples: Samples, host_us: float, null: Null, processes: int) -> Timing:
    """The record of the timed calls of one process, the last of `processes`."""
    calls = samples.calls
    median, interval = median_interval([c.us for c in calls])
    gap, _ = median_interval([between(c) for c in calls])
    return Timing(
        samples_us=tuple(round(c.us, 3) for c in calls),
        median_us=median,
        interval_us=interval,
        processes=processes,
        host_us=host_us,
        referee_us=median + gap - null.least_us,
        floor_us=null.floor_us,
        host_bound_calls=sum(c.host_bound for c in calls),
    )
