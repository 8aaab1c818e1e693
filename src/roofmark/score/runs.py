"""The records of a run to the figures of the run."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from statistics import fmean

from roofmark.errors import ProblemError, UserError
from roofmark.records import (
    Baseline,
    Calibration,
    Interval,
    Isolation,
    Manifest,
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


def score_run(
    manifest: Manifest,
    verdicts: Sequence[Verdict],
    calibrations: Sequence[Calibration],
    baselines: Mapping[str, Sequence[Baseline]] | None = None,
) -> RunScore:
    """The figures of a run from its records alone, the same on any machine and in any order of the records.

    `baselines` maps operators to the deployed kernels' times; only those of the run's own device count.
    `UserError` for two verdicts of one shape, `ProblemError` for weights that are no weights.
    """
    _check_plans(manifest)
    judged = _by_key(verdicts)
    roofline, source = run_roofline(manifest, calibrations)
    weights, weight_notes = _weights(manifest)
    shapes: list[ShapeScore] = []
    operators: list[OperatorScore] = []
    for plan in manifest.plans:
        same_device = [b for b in (baselines or {}).get(plan.operator, ()) if _same_device(b, manifest)]
        bench = Bench(roofline, manifest.backend, same_device)
        own = [_score_one(judged, plan.operator, shape_id, bench) for shape_id in plan.shape_ids]
        shapes += own
        operators.append(score_operator(plan, weights[plan.operator], own))
    incomplete = _incomplete(shapes, calibration_gap(manifest, judged.values(), calibrations))
    uncovered = _uncovered(manifest, operators)
    notes = (*weight_notes, *uncovered, *_notes(manifest, judged, shapes))
    return _assemble(
        manifest,
        operators,
        shapes,
        held_against=(roofline, source),
        dtypes={dtype for verdict in judged.values() for dtype, n in verdict.work.flops.items() if n},
        incomplete=incomplete,
        partial=bool(uncovered),
        notes=notes,
        median_wall_s=middle(v.wall_s for v in judged.values() if v.subject == "candidate"),
    )


def _score_one(judged: Judged, operator: str, shape_id: str, bench: Bench) -> ShapeScore:
    """The figures of one shape that the run was asked for."""
    eager = judged.get(("eager", operator, shape_id))
    verdict = judged.get(("candidate", operator, shape_id))
    if verdict is None:
        return missing_shape(operator, shape_id, eager, bench)
    return score_shape(verdict, eager, bench)


def _check_plans(manifest: Manifest) -> None:
    """Nothing; `UserError` where a manifest counts an operator or a shape twice, or one of no release."""
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


def _same_device(baseline: Baseline, manifest: Manifest) -> bool:
    """Whether a deployed time was taken on the device of the run."""
    return manifest.roofline is not None and baseline.gpu.casefold() == manifest.roofline.device.casefold()


def _incomplete(shapes: Iterable[ShapeScore], gap: str) -> tuple[str, ...]:
    """Why the run is not complete, one line a reason."""
    reasons = [gap] if gap else []
    for shape in shapes:
        name = f"{shape.operator} shape {shape.shape_id}"
        if shape.status in (Status.IMPOSSIBLE, Status.INFRASTRUCTURE, "missing"):
            reasons.append(f"{name} is {shape.status}" + (f": {shape.message}" if shape.message else ""))
        for who, s in (("eager reference", shape.eager_s), ("deployed kernel", shape.baseline_s)):
            if s is not None and s > 1:
                reasons.append(f"{name}: the {who} reaches S = {s:.3f}, so the bound is wrong")
    return tuple(reasons)


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
    notes = []
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


def _assemble(
    manifest: Manifest,
    operators: Sequence[OperatorScore],
    shapes: Sequence[ShapeScore],
    *,
    held_against: tuple[Roofline | None, str],
    dtypes: set[str],
    incomplete: tuple[str, ...],
    partial: bool,
    notes: tuple[str, ...],
    median_wall_s: float | None,
) -> RunScore:
    """The record of the run."""
    whole = not incomplete and not partial
    scored = [o for o in operators if o.s_strict is not None]
    s, strict = _weighted(scored, lambda o: o.s), _weighted(scored, lambda o: o.s_strict)
    covered = math.fsum(o.weight * o.scored / o.shapes_of_release for o in operators if o.shapes_of_release)
    return RunScore(
        median_wall_s=median_wall_s,
        run_id=manifest.run_id,
        release=manifest.release,
        release_sha256=manifest.release_sha256,
        device=manifest.device,
        backend=manifest.backend,
        isolation=manifest.isolation,
        roofline=held_against[0],
        roofline_source=held_against[1],
        dtypes=tuple(sorted(dtypes)),
        complete=not incomplete,
        partial=partial,
        ranked=whole and manifest.isolation is not Isolation.UNSAFE,
        weight_covered=covered,
        compile_rate=_mean(o.compile_rate for o in operators),
        compile_rate_without_fallbacks=_mean(o.compile_rate_without_fallbacks for o in operators),
        correct_rate=_mean(o.correct_rate for o in operators),
        adoption=_mean(o.adoption for o in operators),
        adoption_operators=_count(o.adoption for o in operators),
        speedup_over_eager=middle(o.speedup_over_eager for o in operators),
        speedup_over_eager_operators=_count(o.speedup_over_eager for o in operators),
        speedup_over_baseline=middle(o.speedup_over_baseline for o in operators),
        speedup_over_baseline_operators=_count(o.speedup_over_baseline for o in operators),
        s_agg=s if whole else None,
        s_agg_interval=_weighted_interval(operators) if whole else None,
        s_strict_agg=strict if whole else None,
        eager_s_agg=_weighted(operators, lambda o: o.eager_s) if whole else None,
        baseline_s_agg=_weighted(operators, lambda o: o.baseline_s) if whole else None,
        s_covered=s,
        s_strict_covered=strict,
        eager_s_covered=_weighted(scored, lambda o: o.eager_s),
        operators=tuple(operators),
        shapes=tuple(shapes),
        incomplete=incomplete,
        notes=notes,
    )


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


def _count(values: Iterable[float | None]) -> int:
    """How many of the values are known."""
    return sum(value is not None for value in values)
