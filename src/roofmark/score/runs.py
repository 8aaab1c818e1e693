"""The records of a run to the figures of the run."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from statistics import fmean
from typing import Any

from roofmark.errors import ProblemError, UserError
from roofmark.records import (
    Baseline,
    Calibration,
    Interval,
    Isolation,
    Manifest,
    OperatorPlan,
    OperatorScore,
    Roofline,
    RunScore,
    ShapeScore,
    Status,
    Verdict,
)
from roofmark.score.limits import calibration_gap, run_roofline
from roofmark.score.operators import middle, score_operator
from roofmark.score.shapes import Bench, missing_shape, score_shape

Judged = Mapping[tuple[str, str, str], Verdict]
Pick = Callable[[OperatorScore], float | None]

# How the reference may end without casting doubt on the operator, its oracle or the referee: it has no time
# where it does not fit or does not settle. Any other end is a fault of ours.
EAGER_MAY_END = (Status.OK, Status.UNSTABLE, Status.OUT_OF_MEMORY, Status.OVER_TIME_BUDGET)


def score_run(manifest: Manifest, verdicts: Sequence[Verdict], calibrations: Sequence[Calibration]) -> RunScore:
    """The figures of a run from its records alone, the same on any machine and in any order of the records.

    `UserError` for two verdicts of one shape, `ProblemError` for weights that are no weights.
    """
    _check_plans(manifest)
    judged = _by_key(verdicts)
    roofline, source = run_roofline(manifest, calibrations)
    weights, weight_notes = _weights(manifest)
    by_plan = [_score_plan(manifest, plan, judged, roofline) for plan in manifest.plans]
    shapes = [shape for own in by_plan for shape in own]
    operators = [
        score_operator(plan, weights[plan.operator], own) for plan, own in zip(manifest.plans, by_plan, strict=True)
    ]
    gap = calibration_gap(manifest, judged.values(), calibrations)
    incomplete = (*([gap] if gap else []), *_undecided(shapes, judged))
    uncovered = _uncovered(manifest, operators)
    return RunScore(
        run_id=manifest.run_id,
        release=manifest.release,
        release_sha256=manifest.release_sha256,
        device=manifest.device,
        backend=manifest.backend,
        isolation=manifest.isolation,
        roofline=roofline,
        roofline_source=source,
        dtypes=tuple(sorted({d for v in judged.values() for d, count in v.work.flops.items() if count})),
        complete=not incomplete,
        partial=bool(uncovered),
        ranked=not incomplete and not uncovered and manifest.isolation is not Isolation.UNSAFE,
        **_rates(operators),
        **_means(operators, whole=not incomplete and not uncovered),
        median_wall_s=middle(v.wall_s for v in judged.values() if v.subject == "candidate"),
        operators=tuple(operators),
        shapes=tuple(shapes),
        incomplete=incomplete,
        notes=(*weight_notes, *uncovered, *_notes(manifest, judged, shapes)),
    )


def _score_plan(manifest: Manifest, plan: OperatorPlan, judged: Judged, roofline: Roofline | None) -> list[ShapeScore]:
    """The figures of the shapes that the run was asked for of an operator."""
    bench = Bench(roofline, manifest.backend, tuple(b for b in plan.baselines if _is_same_gpu(b, manifest)))
    return [_score_one(judged, plan.operator, shape_id, bench) for shape_id in plan.shape_ids]


def _is_same_gpu(baseline: Baseline, manifest: Manifest) -> bool:
    """Whether a deployed time was taken on the GPU of the run; times of two GPUs make no ratio."""
    return (
        manifest.roofline is not None
        and baseline.gpu.casefold().replace("-", "_") == manifest.roofline.device.casefold()
    )


def _score_one(judged: Judged, operator: str, shape_id: str, bench: Bench) -> ShapeScore:
    """The figures of one shape that the run was asked for."""
    eager = judged.get(("eager", operator, shape_id))
    verdict = judged.get(("candidate", operator, shape_id))
    if verdict is None:
        return missing_shape(operator, shape_id, eager, bench)
    return score_shape(verdict, eager, bench)


def _check_plans(manifest: Manifest) -> None:
    """Refuses, with a `UserError`, a manifest that counts an operator or a shape twice, or one of no release."""
    operators = [plan.operator for plan in manifest.plans]
    if len(set(operators)) < len(operators):
        raise UserError(f"the manifest of run {manifest.run_id} names an operator twice")
    for plan in manifest.plans:
        asked = set(plan.shape_ids)
        if len(asked) < len(plan.shape_ids) or not asked <= set(plan.all_shape_ids):
            raise UserError(
                f"the manifest of run {manifest.run_id} asks for a shape of {plan.operator}"
                " twice, or for one that its release lacks"
            )


def _by_key(verdicts: Iterable[Verdict]) -> Judged:
    """The verdicts by (subject, operator, shape)."""
    judged: dict[tuple[str, str, str], Verdict] = {}
    for verdict in verdicts:
        key = (verdict.subject, verdict.operator, verdict.shape_id)
        if key in judged:
            raise UserError(f"two verdicts of {key[0]} on {key[1]} shape {key[2]}: no score can rest on both")
        judged[key] = verdict
    return judged


def _weights(manifest: Manifest) -> tuple[dict[str, float], tuple[str, ...]]:
    """The weights of the release's operators normalised to 1, and a note where they were not."""
    given = dict(manifest.release_weights)
    for plan in manifest.plans:
        given.setdefault(plan.operator, plan.weight)
    for operator, weight in given.items():
        if not (math.isfinite(weight) and weight >= 0):
            raise ProblemError(f"the weight of {operator} in release {manifest.release} is {weight}")
    total = math.fsum(given.values())
    if total <= 0:
        raise ProblemError(f"the weights of release {manifest.release} sum to {total}")
    off = abs(total - 1) > 1e-9
    notes = (f"the release's weights sum to {total:.6g} and are normalised",) if off else ()
    return {operator: weight / total for operator, weight in given.items()}, notes


def _undecided(shapes: Iterable[ShapeScore], judged: Judged) -> Iterator[str]:
    """Why the run is not complete, one line a reason: the shapes first, each with its reference's failure."""
    for shape in shapes:
        name = f"{shape.operator} shape {shape.shape_id}"
        if shape.status in (Status.IMPOSSIBLE, Status.INFRASTRUCTURE, "missing"):
            yield f"{name} is {shape.status}" + (f": {shape.message}" if shape.message else "")
        eager = judged.get(("eager", shape.operator, shape.shape_id))
        if eager is not None and eager.status not in EAGER_MAY_END:
            line = " ".join(eager.message.split())
            yield f"{name}: the eager reference is {eager.status}" + (f": {line}" if line else "")
        for who, s in (("eager reference", shape.eager_s), ("deployed kernel", shape.baseline_s)):
            if s is not None and s > 1:
                yield f"{name}: the {who} reaches S = {s:.3f}, so the bound is wrong"


def _uncovered(manifest: Manifest, operators: Iterable[OperatorScore]) -> tuple[str, ...]:
    """What of the release the run does not cover, one line a reason; any makes it partial."""
    planned = {plan.operator for plan in manifest.plans}
    absent = sorted(set(manifest.release_weights) - planned)
    lines = []
    if absent:
        few = ", ".join(absent[:3]) + (", ..." if len(absent) > 3 else "")
        lines.append(f"not asked for: {len(absent)} of {len(absent) + len(planned)} operators ({few})")
    lines += [
        f"{o.operator}: {o.shapes} of {o.shapes_of_release} shapes asked for"
        for o in operators
        if o.shapes < o.shapes_of_release
    ]
    lines += [
        f"{o.operator}: {o.stand_ins} of {o.shapes} shapes are stand-ins, never scored"
        for o in operators
        if o.stand_ins
    ]
    return tuple(lines)


def _notes(manifest: Manifest, judged: Judged, shapes: Iterable[ShapeScore]) -> tuple[str, ...]:
    """What else a reader should know of the run."""
    notes = [f"the release offers {line}" for line in manifest.unavailable]
    if manifest.isolation is not Isolation.BUBBLEWRAP:
        notes.append(f"isolation was {manifest.isolation.value}, not {Isolation.BUBBLEWRAP.value}")
    planned = {(plan.operator, shape_id) for plan in manifest.plans for shape_id in plan.shape_ids}
    strangers = sum(key[1:] not in planned for key in judged)
    if strangers:
        notes.append(f"{strangers} verdicts that the run was not asked for are ignored")
    untimed = sum(shape.eager_us is None for shape in shapes)
    if untimed:
        notes.append(f"the eager reference has no time on {untimed} shapes")
    return tuple(notes)


def _rates(operators: Sequence[OperatorScore]) -> dict[str, Any]:
    """The rates, adoption and ratios of the run, each over the operators where it is defined."""
    adoptions = [o.adoption for o in operators if o.adoption is not None]
    over_eager = [o.speedup_over_eager for o in operators if o.speedup_over_eager is not None]
    over_baseline = [o.speedup_over_baseline for o in operators if o.speedup_over_baseline is not None]
    return {
        "compile_rate": _mean(o.compile_rate for o in operators),
        "compile_rate_without_fallbacks": _mean(o.compile_rate_without_fallbacks for o in operators),
        "correct_rate": _mean(o.correct_rate for o in operators),
        "adoption": _mean(adoptions),
        "adoption_operators": len(adoptions),
        "speedup_over_eager": middle(over_eager),
        "speedup_over_eager_operators": len(over_eager),
        "speedup_over_baseline": middle(over_baseline),
        "speedup_over_baseline_operators": len(over_baseline),
    }


def _means(operators: Sequence[OperatorScore], *, whole: bool) -> dict[str, Any]:
    """The weighted means of S: over what is scored, and, where the run is `whole`, over the release."""
    scored = [o for o in operators if o.s_strict is not None]
    s, strict = _weighted(scored, lambda o: o.s), _weighted(scored, lambda o: o.s_strict)
    return {
        "weight_covered": math.fsum(
            o.weight * o.scored / o.shapes_of_release for o in operators if o.shapes_of_release
        ),
        "s_agg": s if whole else None,
        "s_agg_interval": _weighted_interval(operators) if whole else None,
        "s_strict_agg": strict if whole else None,
        "eager_s_agg": _weighted(operators, lambda o: o.eager_s) if whole else None,
        "baseline_s_agg": _weighted(operators, lambda o: o.baseline_s) if whole else None,
        "s_covered": s,
        "s_strict_covered": strict,
        "eager_s_covered": _weighted(scored, lambda o: o.eager_s),
    }


def _weighted(operators: Sequence[OperatorScore], pick: Pick) -> float | None:
    """The weighted mean over the operators, None where one of them lacks the figure or all weigh nothing."""
    pairs = [(o.weight, pick(o)) for o in operators]
    known = [(weight, value) for weight, value in pairs if value is not None]
    total = math.fsum(weight for weight, _ in known)
    if len(known) < len(pairs) or total <= 0:
        return None
    return math.fsum(weight * value for weight, value in known) / total


def _weighted_interval(operators: Sequence[OperatorScore]) -> Interval | None:
    """The weighted means of the lower and of the upper ends; an operator that scores 0 has [0, 0]."""
    zero = Interval(low=0.0, high=0.0)
    ends = {o.operator: zero if o.s == 0 else o.s_interval for o in operators}
    low = _weighted(operators, lambda o: end.low if (end := ends[o.operator]) else None)
    high = _weighted(operators, lambda o: end.high if (end := ends[o.operator]) else None)
    return None if low is None or high is None else Interval(low=low, high=high)


def _mean(values: Iterable[float | None]) -> float | None:
    """The mean of those values that are known, None where none is."""
    known = [value for value in values if value is not None]
    return fmean(known) if known else None
