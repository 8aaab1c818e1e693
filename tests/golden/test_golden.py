"""The golden runs against figures worked out by hand, and against the score files beside them, to the bit."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from golden_runs import HERE, RUNS, write

from roofmark.records import Interval, OperatorScore, RunScore, ShapeScore, Status
from roofmark.score import TABLE, score_run
from roofmark.store import load_run


def scored(name: str) -> RunScore:
    stored = load_run(HERE / name)
    assert stored.repairs == ()
    return score_run(stored.manifest, stored.verdicts, stored.calibrations)


def operator(score: RunScore, name: str) -> OperatorScore:
    return next(o for o in score.operators if o.operator == name)


def shape(score: RunScore, number: int, name: str = "alpha") -> ShapeScore:
    return next(s for s in score.shapes if (s.operator, s.shape_id) == (name, str(number)))


def near(figure: float) -> object:
    return pytest.approx(figure, rel=1e-12)


@pytest.mark.parametrize("name", RUNS)
def test_the_stored_score_is_reproduced_to_the_bit(name: str) -> None:
    stored = json.loads((HERE / name / "score.json").read_text(encoding="utf-8"))
    assert json.loads(scored(name).model_dump_json()) == stored
    assert RunScore.model_validate(stored) == scored(name)


@pytest.mark.parametrize("name", RUNS)
def test_the_stored_files_are_those_of_the_generator(name: str, tmp_path: Path) -> None:
    write(name, tmp_path / "run")
    fresh = {f.name: f.read_bytes() for f in (tmp_path / "run").iterdir()}
    assert fresh == {f.name: f.read_bytes() for f in (HERE / name).iterdir() if f.name != ".lock"}


def test_every_status_is_in_a_golden_run() -> None:
    seen = {v.status for name in RUNS for v in RUNS[name]().verdicts}
    assert seen == set(Status)
    assert {s.status for name in RUNS for s in scored(name).shapes} == set(TABLE)


# Of each shape of alpha in `complete`: its status, then compile, correct, S in the median, S_strict.
# T_SOL is 1e7 bytes at 1e12 bytes/s = 10 µs, so S is 10/20, 10/40 and 10/100.
ROWS = [
    ("ok", 1, 1, 0.5, 0.5),
    ("ok", 1, 1, 0.25, 0.25),
    ("compile_error", 0, 0, None, 0),
    ("crash", 1, 0, None, 0),
    ("timeout", 1, 0, None, 0),
    ("out_of_memory", 1, 0, None, 0),
    ("wrong_shape_or_dtype", 1, 0, None, 0),
    ("not_finite", 1, 0, None, 0),
    ("wrong_values", 1, 0, None, 0),
    ("rule_broken", 1, 0, None, 0),
    ("over_time_budget", 1, 1, None, 0),
    ("unstable", 1, 1, 0, 0),
    ("crash", 0, 0, None, 0),  # inside gate 1: keeps its name and counts compile 0
    ("ok", 1, 1, 0.1, 0.1),  # a fallback
]


def test_each_row_of_the_table() -> None:
    score = scored("complete")
    for number, (status, compiled, correct, s, strict) in enumerate(ROWS):
        got = shape(score, number)
        assert got.status == status
        assert (got.counts_compiled, got.counts_correct) == (bool(compiled), bool(correct))
        assert got.s == (None if s is None else near(s)), number
        assert got.s_strict == near(strict), number


def test_the_shape_that_passed() -> None:
    one = shape(scored("complete"), 0)
    assert one.t_sol_us == near(10)
    assert one.s_interval is not None
    assert (one.s_interval.low, one.s_interval.high) == (near(0.4), near(0.625))  # 10/25 and 10/16
    assert one.s_attainable == near(0.5)  # the floor of 5 µs lies below T_SOL
    assert shape(scored("complete"), 1).s_attainable == near(0.4)  # a floor of 16 µs: 16/40
    assert one.eager_s == near(0.25)  # 10/40
    assert one.speedup_over_eager == near(2)  # 40/20
    assert one.adoption == 0.75


def test_what_failed_shows_no_time_but_what_was_slow_does() -> None:
    score = scored("complete")
    assert shape(score, 9).time_us is None  # rule_broken: a record of 1 µs is nothing to show
    assert shape(score, 10).time_us == 500
    assert shape(score, 11).time_us == 25


def test_the_operators() -> None:
    alpha, beta, gamma = (operator(scored("complete"), name) for name in ("alpha", "beta", "gamma"))
    assert (alpha.weight, beta.weight, gamma.weight) == (0.5, 0.25, 0.25)  # of 1, 0.5, 0.5
    assert alpha.s == near(0.175)  # median of 0, 0.1, 0.25, 0.5 (the unstable one is the 0)
    assert alpha.s_strict == 0  # median of 11 zeros and three figures
    assert alpha.s_interval == Interval(low=0.14, high=0.21875)  # 0.175 x 0.8 and x 1.25
    assert alpha.compile_rate == near(12 / 14)  # not shapes 2 and 12
    assert alpha.compile_rate_without_fallbacks == near(11 / 14)  # nor shape 13
    assert alpha.correct_rate == near(5 / 14)  # three ok, one slow, one unstable
    assert alpha.adoption == 0.75  # median of 0.75, 1 and the fallback's 0
    assert alpha.speedup_over_eager == near(1.5)  # median of 40/20, 60/40, 60/100
    assert (alpha.eager_s, alpha.eager_shapes, alpha.s_shapes) == (near(10 / 60), 4, 4)  # as S: 0, 1, 11, 13
    assert alpha.s_attainable == near(0.45)  # of the two shapes with a floor
    assert beta.s == beta.s_strict == near(0.625)  # 100/160, between 0.5 and 0.8
    assert (gamma.s, gamma.s_strict, gamma.adoption, gamma.speedup_over_eager) == (0, 0, None, None)
    assert (gamma.compile_rate, gamma.correct_rate) == (0.5, 0)
    assert [o.regime for o in (alpha, beta, gamma)] == ["memory", "compute", "index"]
    assert alpha.counts["crash"] == 2
    assert sum(alpha.counts.values()) == 14


def test_the_run() -> None:
    score = scored("complete")
    assert (score.complete, score.partial, score.ranked) == (True, False, True)
    assert score.weight_covered == near(1)
    assert score.s_agg == near(0.24375)  # 0.5 x 0.175 + 0.25 x 0.625 + 0.25 x 0
    assert score.s_agg_interval is not None
    assert score.s_agg_interval.low == near(0.8 * 0.24375)
    assert score.s_strict_agg == near(0.15625)  # 0.25 x 0.625
    assert score.compile_rate == near((12 / 14 + 1 + 0.5) / 3)
    assert score.compile_rate_without_fallbacks == near((11 / 14 + 1 + 0.5) / 3)
    assert score.correct_rate == near((5 / 14 + 1 + 0) / 3)  # the failed operator counts 0
    assert (score.adoption, score.adoption_operators) == (near((0.75 + 0.5) / 2), 2)
    assert (score.speedup_over_eager, score.speedup_over_eager_operators) == (near(2), 2)  # of 1.5 and 2.5
    assert score.eager_s_agg is None  # gamma has no eager time
    assert "sum to 2 and are normalised" in score.notes[0]


def test_what_makes_a_run_incomplete() -> None:
    score = scored("incomplete")
    assert (score.complete, score.partial, score.ranked) == (False, False, False)
    assert (score.s_agg, score.s_strict_agg) == (None, None)
    assert [shape(score, n).status for n in range(5)] == [
        "ok",
        "impossible",
        "impossible",
        "infrastructure",
        "missing",
    ]
    for number in range(1, 5):
        got = shape(score, number)
        assert (got.s, got.s_strict, got.counts_compiled, got.counts_correct) == (None, None, None, None)
    assert "S = 1.250 is above 1" in shape(score, 2).message  # 10/8, never clipped
    assert len(score.incomplete) == 6
    assert "eager reference reaches S = 2.500" in score.incomplete[4]
    assert score.incomplete[5] == "alpha shape 6: the eager reference is wrong_values: y[0] is 3"
    alpha = operator(score, "alpha")
    assert (alpha.s, alpha.s_strict) == (near(0.5), near(0.5))  # of 0.5, 0.5 and 0: three shapes were decided
    assert alpha.eager_s is None  # 2.5 enters no median
    assert score.weight_covered == near(3 / 7)


def test_a_partial_run_on_a_cpu() -> None:
    score = scored("partial_cpu")
    assert (score.complete, score.partial, score.ranked, score.s_agg) == (True, True, False, None)
    assert score.roofline is not None
    assert score.roofline.bandwidth_bytes_per_s == 2e10  # of the second calibration
    assert score.roofline.peak_flops == {"fp32": 2e11}  # of the first
    assert shape(score, 0).s == near(50 / 80)  # 1e6 bytes at 2e10 bytes/s
    stand_in = shape(score, 1)
    assert (stand_in.time_us, stand_in.s, stand_in.s_strict, stand_in.eager_s) == (10, None, None, None)
    alpha = operator(score, "alpha")
    assert (alpha.s, alpha.s_strict) == (near(0.625), near(0.3125))
    assert alpha.correct_rate == near(2 / 3)  # stand-ins are judged, so they count here
    assert alpha.adoption == 1  # but not here
    assert score.weight_covered == near(0.75 * 2 / 4)  # two of alpha's four shapes at full size; no beta
    assert (score.s_covered, score.s_strict_covered) == (near(0.625), near(0.3125))
    assert score.speedup_over_eager == near(1.25)
    assert score.speedup_over_baseline is None


def test_the_ratio_to_the_deployed_kernels() -> None:
    score = scored("deployed")
    shapes = [shape(score, n) for n in range(3)] + [shape(score, n, "beta") for n in range(2)]
    assert [s.baseline_us for s in shapes] == [25, 20, 12.5, 250, None]  # the fastest on G1, never one on G2
    ratios = [s.speedup_over_baseline for s in shapes]
    assert ratios == [near(1.25), near(0.5), None, near(1.25), None]  # 25/20, 20/40, failed, 250/200, no time
    assert [s.baseline_s for s in shapes] == [near(0.4), near(0.5), near(0.8), near(0.4), None]  # 10/25 ... 100/250
    alpha, beta = score.operators
    assert (alpha.speedup_over_baseline, beta.speedup_over_baseline) == (near(0.875), near(1.25))
    assert (alpha.baseline_s, beta.baseline_s) == (near(0.5), near(0.4))  # their own: failed shapes of ours count
    assert score.speedup_over_baseline == near(1.0625)  # between 0.875 and 1.25
    assert score.speedup_over_baseline_operators == 2
    assert score.baseline_s_agg == near(0.475)  # 0.75 x 0.5 + 0.25 x 0.4
    assert score.s_agg == near(0.44375)  # 0.75 x 0.375 + 0.25 x 0.65


def test_a_run_without_deployed_times_has_no_ratio_to_them() -> None:
    score = scored("complete")
    assert (score.speedup_over_baseline, score.speedup_over_baseline_operators) == (None, 0)
    assert score.baseline_s_agg is None
