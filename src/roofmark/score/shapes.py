"""One verdict to the figures of its shape."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

from roofmark.hardware.roofline import t_sol_us
from roofmark.records import Baseline, Compiled, Interval, Roofline, ShapeScore, Status, Timing, Verdict, Work
from roofmark.score.table import Ended, Row, row

SHOWS_TIME = (Status.OK, Status.OVER_TIME_BUDGET, Status.UNSTABLE, Status.IMPOSSIBLE)


class Bench(NamedTuple):
    """What a shape is held against: the roofline, the backend whose code it should run, deployed times of its GPU."""

    roofline: Roofline | None
    backend: str
    baselines: Sequence[Baseline] = ()


def missing_shape(operator: str, shape_id: str, eager: Verdict | None, bench: Bench) -> ShapeScore:
    """The figures of a shape that the run holds no verdict of: none but the reference's."""
    return _assemble(operator, shape_id, None, eager, bench, status="missing", message="no verdict in this run")


def score_shape(verdict: Verdict, eager: Verdict | None, bench: Bench) -> ShapeScore:
    """The figures of a judged shape. S above 1 makes it `impossible`, an absurd time `infrastructure`."""
    status, message = _ended(verdict, bench)
    return _assemble(verdict.operator, verdict.shape_id, verdict, eager, bench, status=status, message=message)


def bound_us(work: Work, roofline: Roofline | None) -> float | None:
    """T_SOL in µs, None without a roofline, infinite for counts beyond what a float holds."""
    try:
        return None if roofline is None else t_sol_us(work, roofline)
    except OverflowError:
        return math.inf


def _ended(verdict: Verdict, bench: Bench) -> tuple[Ended, str]:
    """The status that counts, and its one-line reason."""
    line = " ".join(verdict.message.split())
    timing, t_sol = verdict.timing, bound_us(verdict.work, bench.roofline)
    if verdict.status is Status.IMPOSSIBLE and "S = " not in line and timing and t_sol and timing.median_us:
        return verdict.status, f"S = {t_sol / timing.median_us:.3f}" + (f": {line}" if line else "")
    if verdict.status is not Status.OK:
        return verdict.status, line
    if timing is None:
        return (Status.OK, line) if verdict.stand_in else (Status.INFRASTRUCTURE, "passed, but not timed")
    if not (math.isfinite(timing.median_us) and timing.median_us > 0):
        return Status.INFRASTRUCTURE, f"the recorded time is {timing.median_us} µs"
    if t_sol is not None and not (math.isfinite(t_sol) and t_sol > 0):
        return Status.INFRASTRUCTURE, f"the recorded work gives T_SOL = {t_sol} µs"
    if t_sol is not None and not verdict.stand_in and t_sol > timing.median_us:
        s = t_sol / timing.median_us
        return Status.IMPOSSIBLE, f"S = {s:.3f} is above 1: {timing.median_us:g} µs against {t_sol:g} µs"
    return Status.OK, line


def _assemble(
    operator: str,
    shape_id: str,
    verdict: Verdict | None,
    eager: Verdict | None,
    bench: Bench,
    *,
    status: Ended,
    message: str,
) -> ShapeScore:
    """The record of a shape that ended with `status`."""
    known = verdict or eager
    stand_in = known is not None and known.stand_in
    gate, compiled = (verdict.gate, verdict.compiled) if verdict else (None, Compiled.NOT_RUN)
    counts = row(status, gate, compiled)
    timing = verdict.timing if verdict and status in SHOWS_TIME else None
    t_sol = bound_us(known.work, bench.roofline) if known else None
    passed = timing if status is Status.OK and not stand_in else None
    return ShapeScore(
        operator=operator,
        shape_id=shape_id,
        dims=known.dims if known else {},
        stand_in=stand_in,
        status=status,
        gate=gate,
        compiled=compiled,
        counts_compiled=counts.compiled,
        counts_correct=counts.correct,
        intensity=_intensity(known.work) if known else None,
        t_sol_us=t_sol,
        time_us=timing.median_us if timing else None,
        interval_us=timing.interval_us if timing else None,
        adoption=_adoption(verdict, bench.backend) if verdict and status is Status.OK else None,
        message=message,
        notes=_notes(verdict, timing, stand_in),
        **_s_figures(counts, stand_in, t_sol, passed),
        **_eager_figures(_eager_us(eager, known), stand_in, t_sol, passed),
        **_baseline_figures(None if stand_in else _baseline_us(shape_id, bench), t_sol, passed),
    )


def _s_figures(counts: Row, stand_in: bool, t_sol: float | None, passed: Timing | None) -> dict[str, Any]:
    """The four figures in S: of a shape that passed all, of a failure zeros, of a stand-in none."""
    figures: dict[str, Any] = {"s": None, "s_strict": None, "s_interval": None, "s_attainable": None}
    if stand_in or not counts.complete:
        return figures
    if counts.in_median != "s":
        return figures | {"s": 0.0 if counts.in_median == "zero" else None, "s_strict": 0.0}
    if passed is None or t_sol is None:
        return figures
    s, low, high = t_sol / passed.median_us, passed.interval_us.low, passed.interval_us.high
    figures |= {"s": s, "s_strict": s}
    if 0 < low <= high < math.inf:
        figures["s_interval"] = Interval(low=t_sol / high, high=t_sol / low)
    if passed.floor_us is not None:
        figures["s_attainable"] = max(t_sol, passed.floor_us) / passed.median_us
    return figures


def _eager_figures(
    eager_us: float | None, stand_in: bool, t_sol: float | None, passed: Timing | None
) -> dict[str, float | None]:
    """The reference's time and S, and the ratio of its time to that of a candidate that passed."""
    return {
        "eager_us": eager_us,
        "eager_s": None if stand_in else _quotient(t_sol, eager_us),
        "speedup_over_eager": _quotient(eager_us, passed.median_us if passed else None),
    }


def _baseline_figures(baseline_us: float | None, t_sol: float | None, passed: Timing | None) -> dict[str, float | None]:
    """The deployed kernel's time and S, and the ratio of its time to that of a candidate that passed."""
    return {
        "baseline_us": baseline_us,
        "baseline_s": _quotient(t_sol, baseline_us),
        "speedup_over_baseline": _quotient(baseline_us, passed.median_us if passed else None),
    }


def _baseline_us(shape_id: str, bench: Bench) -> float | None:
    """The time of the fastest deployed kernel on a shape at full size, None where there is none."""
    return min((baseline.time_us for baseline in bench.baselines if baseline.shape_id == shape_id), default=None)


def _eager_us(eager: Verdict | None, known: Verdict | None) -> float | None:
    """The reference's time where it passed on the very same sizes, else None."""
    if eager is None or known is None or eager.status is not Status.OK or eager.timing is None:
        return None
    same = (eager.dims, eager.stand_in) == (known.dims, known.stand_in)
    time_us = eager.timing.median_us
    return time_us if same and math.isfinite(time_us) and time_us > 0 else None


def _adoption(verdict: Verdict, backend: str) -> float | None:
    """The share of device time in code of the backend's language: 0 for a fallback, None if not measured."""
    if verdict.compiled is Compiled.FALLBACK:
        return 0.0
    return None if verdict.adoption is None else verdict.adoption.get(backend, 0.0)


def _notes(verdict: Verdict | None, timing: Timing | None, stand_in: bool) -> tuple[str, ...]:
    """What a reader should know of the shape, each in a word or two."""
    notes = ["stand-in"] if stand_in else []
    if verdict and verdict.compiled is Compiled.FALLBACK:
        notes.append("fallback")
    if timing and timing.host_bound_calls:
        notes.append(f"host-bound {timing.host_bound_calls}/{len(timing.samples_us)}")
    return tuple(notes)


def _intensity(work: Work) -> float | None:
    """FLOP per byte, None for work that moves nothing."""
    try:
        return work.intensity if work.bytes_total > 0 else None
    except OverflowError:
        return math.inf


def _quotient(a: float | None, b: float | None) -> float | None:
    """a / b where both are known."""
    return None if a is None or b is None else a / b
