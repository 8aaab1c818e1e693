"""What holds of every score, whatever the records."""

from __future__ import annotations

import random

from hypothesis import given, settings
from hypothesis import strategies as st
from score_records import manifest, verdict

from roofmark.records import RunScore, Status, Verdict
from roofmark.score import score_run

DECIDED = [s for s in Status if s not in (Status.IMPOSSIBLE, Status.INFRASTRUCTURE)]
FAILING = [s for s in DECIDED if s is not Status.OK]
TIMES = st.floats(10.001, 1e6)  # T_SOL is 10 µs


@st.composite
def shapes(draw: st.DrawFn, statuses: list[Status]) -> list[tuple[str, Status, float]]:
    """Up to 8 (operator, status, time) of up to three operators."""
    one = st.tuples(st.sampled_from(["alpha", "beta", "gamma"]), st.sampled_from(statuses), TIMES)
    return draw(st.lists(one, min_size=1, max_size=8))


def records(drawn: list[tuple[str, Status, float]]) -> list[Verdict]:
    return [verdict(str(n), status, time, operator=op) for n, (op, status, time) in enumerate(drawn)]


def score(verdicts: list[Verdict], weights: dict[str, float] | None = None) -> RunScore:
    ids: dict[str, list[str]] = {}
    for v in sorted(verdicts, key=lambda v: (v.operator, int(v.shape_id))):
        ids.setdefault(v.operator, []).append(v.shape_id)
    given_weights = {op: (weights or {}).get(op, 1.0) for op in ids}
    return score_run(manifest(ids, release_weights=given_weights), verdicts, ())


@settings(deadline=None)
@given(shapes(DECIDED), st.dictionaries(st.sampled_from(["alpha", "beta"]), st.floats(0.01, 100)))
def test_every_figure_lies_where_it_must(drawn: list[tuple[str, Status, float]], weights: dict[str, float]) -> None:
    run = score(records(drawn), weights)
    assert run.complete
    assert run.s_agg is not None
    assert run.s_strict_agg is not None
    assert 0 <= run.s_strict_agg <= run.s_agg <= 1
    assert run.correct_rate is not None
    assert run.compile_rate is not None
    assert run.compile_rate_without_fallbacks is not None
    assert 0 <= run.correct_rate <= run.compile_rate <= 1
    assert run.compile_rate_without_fallbacks <= run.compile_rate
    assert abs(sum(o.weight for o in run.operators) - 1) < 1e-9
    assert RunScore.model_validate_json(run.model_dump_json()) == run


@settings(deadline=None)
@given(shapes(DECIDED), st.sampled_from(FAILING), st.sampled_from(["alpha", "beta", "gamma"]))
def test_one_more_failing_shape_never_raises_s_strict_or_a_rate(
    drawn: list[tuple[str, Status, float]], status: Status, operator: str
) -> None:
    if operator not in {op for op, _, _ in drawn}:
        operator = drawn[0][0]
    before = score(records(drawn))
    after = score(records([*drawn, (operator, status, 99.0)]))
    assert before.s_strict_agg is not None
    assert after.s_strict_agg is not None
    assert after.s_strict_agg <= before.s_strict_agg + 1e-12


@settings(deadline=None)
@given(shapes(list(Status)), st.randoms(use_true_random=False))
def test_the_order_of_the_records_does_not_matter(drawn: list[tuple[str, Status, float]], rng: random.Random) -> None:
    verdicts = records(drawn)
    shuffled = list(verdicts)
    rng.shuffle(shuffled)
    assert score(shuffled) == score(verdicts)


@settings(deadline=None)
@given(shapes([Status.OK]), st.integers(0, 7))
def test_dropping_a_record_never_completes_or_ranks(drawn: list[tuple[str, Status, float]], index: int) -> None:
    verdicts = records(drawn)
    dropped = verdicts[index % len(verdicts)]
    ids: dict[str, list[str]] = {}
    for v in verdicts:
        ids.setdefault(v.operator, []).append(v.shape_id)
    run = score_run(manifest(ids), [v for v in verdicts if v is not dropped], ())
    assert (run.complete, run.ranked, run.s_agg) == (False, False, None)


@settings(deadline=None)
@given(st.lists(TIMES, min_size=1, max_size=6), st.floats(1.0001, 5))
def test_a_faster_kernel_never_scores_less(times: list[float], factor: float) -> None:
    slow = [("alpha", Status.OK, time * factor) for time in times]
    fast = [("alpha", Status.OK, time) for time in times]
    low, high = score(records(slow)).s_agg, score(records(fast)).s_agg
    assert low is not None
    assert high is not None
    assert low <= high
