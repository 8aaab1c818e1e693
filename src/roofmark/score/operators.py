"""The shapes of an operator to the operator's figures."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from statistics import fmean, median

from roofmark.hardware.roofline import regime
from roofmark.records import Compiled, Interval, OperatorPlan, OperatorScore, ShapeScore, Status


def score_operator(plan: OperatorPlan, weight: float, shapes: Sequence[ShapeScore]) -> OperatorScore:
    """The figures of an operator from those of its shapes, in any order; `weight` is the normalised one."""
    scored = [shape for shape in shapes if shape.s_strict is not None]
    full_size = [shape for shape in shapes if not shape.stand_in]
    of_s = [shape for shape in scored if shape.s is not None] or scored  # S = 0 speaks of all that failed
    eager = [shape.eager_s for shape in of_s if _is_possible(shape.eager_s)]
    return OperatorScore(
        operator=plan.operator,
        weight=weight,
        shapes=len(plan.shape_ids),
        shapes_of_release=len(plan.all_shape_ids),
        stand_ins=len(shapes) - len(full_size),
        scored=len(scored),
        passed=sum(shape.status is Status.OK for shape in shapes),
        compile_rate=_rate(shape.counts_compiled for shape in shapes),
        compile_rate_without_fallbacks=_rate(_compiled_itself(shape) for shape in shapes),
        correct_rate=_rate(shape.counts_correct for shape in shapes),
        s=_median_or_zero(shape.s for shape in scored) if scored else None,
        s_strict=middle(shape.s_strict for shape in scored),
        s_interval=_interval([shape for shape in scored if shape.s is not None]),
        s_attainable=middle(shape.s_attainable for shape in scored),
        s_shapes=len(of_s),
        eager_s=middle(eager),
        eager_shapes=len(eager),
        speedup_over_eager=middle(shape.speedup_over_eager for shape in scored),
        baseline_s=middle(shape.baseline_s for shape in full_size if _is_possible(shape.baseline_s)),
        speedup_over_baseline=middle(shape.speedup_over_baseline for shape in scored),
        adoption=middle(shape.adoption for shape in full_size),
        regime=_regime(full_size or shapes),
        counts=dict(sorted(Counter(str(shape.status) for shape in shapes).items())),
    )


def middle(values: Iterable[float | None]) -> float | None:
    """The median of those values that are known, None where none is."""
    known = [value for value in values if value is not None]
    return median(known) if known else None


def _is_possible(s: float | None) -> bool:
    """Whether S is known and at most 1: an error of the bound is shown with its shape and enters no median."""
    return s is not None and s <= 1


def _median_or_zero(values: Iterable[float | None]) -> float:
    """The median of those values that are known, 0 where none is."""
    found = middle(values)
    return 0.0 if found is None else found


def _rate(counts: Iterable[bool | None]) -> float | None:
    """The share of True among those that count, None where none does."""
    known = [count for count in counts if count is not None]
    return fmean(known) if known else None


def _compiled_itself(shape: ShapeScore) -> bool | None:
    """Whether the shape counts as compiled with a fallback counted as not compiled."""
    return shape.counts_compiled and shape.compiled is not Compiled.FALLBACK


def _interval(in_median: Sequence[ShapeScore]) -> Interval | None:
    """From the median of the lower ends to the median of the upper ends; None where a shape has no interval.

    The median rises with each of its values, so this encloses at least what the shapes' intervals do.
    """
    zero = Interval(low=0.0, high=0.0)
    ends = [zero if shape.status is Status.UNSTABLE else shape.s_interval for shape in in_median]
    known = [end for end in ends if end is not None]
    if not known or len(known) < len(ends):
        return None
    return Interval(low=median(end.low for end in known), high=median(end.high for end in known))


def _regime(shapes: Iterable[ShapeScore]) -> str:
    """The regime of the median intensity; `index` for an operator without arithmetic."""
    intensity = middle(shape.intensity for shape in shapes)
    return "unknown" if intensity is None else regime(intensity).value
