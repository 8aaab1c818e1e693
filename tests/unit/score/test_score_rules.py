"""Single rules of the score, and what it does with records that make no sense."""

from __future__ import annotations

import math
import subprocess
import sys
from typing import Any

import pytest
from score_records import manifest, verdict

from roofmark.errors import DeviceError, ProblemError, RoofmarkError, UserError
from roofmark.records import (
    Baseline,
    Calibration,
    Compiled,
    Gate,
    Isolation,
    Roofline,
    RunScore,
    Status,
    Verdict,
    Work,
)
from roofmark.score import score_run


def score(*verdicts: Verdict, shapes: str = "0", **fields: Any) -> RunScore:
    return score_run(manifest({"alpha": tuple(shapes)}, **fields), verdicts, ())


def test_no_torch_is_imported() -> None:
    code = "import roofmark.score, roofmark.report, roofmark.store, sys; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


@pytest.mark.parametrize("time_us", [0.0, -1.0, math.inf, math.nan])
def test_a_time_that_is_none_is_our_failure_and_never_a_score(time_us: float) -> None:
    run = score(verdict("0", time_us=time_us))
    assert (run.shapes[0].status, run.shapes[0].s, run.complete) == (Status.INFRASTRUCTURE, None, False)


def test_passed_but_not_timed_is_our_failure() -> None:
    assert score(verdict("0", time_us=None)).shapes[0].message == "passed, but not timed"


@pytest.mark.parametrize(
    "work",
    [
        Work(flops={}, bytes_read=0, bytes_written=0),
        Work(flops={}, bytes_read=-5, bytes_written=0),
        Work(flops={"bf16": 10**400}, bytes_read=1, bytes_written=0),
    ],
)
def test_work_that_makes_no_sense_is_our_failure(work: Work) -> None:
    run = score(verdict("0", work=work))
    assert (run.shapes[0].status, run.complete) == (Status.INFRASTRUCTURE, False)


def test_a_dtype_that_the_roofline_lacks_is_said() -> None:
    with pytest.raises(DeviceError, match="G1 has no peak for fp4"):
        score(verdict("0", work=Work(flops={"fp4": 1}, bytes_read=1, bytes_written=0)))


def test_s_of_exactly_one_is_legal() -> None:
    run = score(verdict("0", time_us=score(verdict("0")).shapes[0].t_sol_us))
    assert (run.s_agg, run.complete) == (1.0, True)


def test_a_pass_without_evidence_of_gate_1_does_not_count_as_compiled() -> None:
    run = score(
        verdict("0", compiled=Compiled.NOT_RUN),
        verdict("1", Status.CRASH, compiled=Compiled.NOT_RUN),
        shapes="01",
    )
    assert run.compile_rate == 0
    assert run.correct_rate == 0.5


@pytest.mark.parametrize(
    "status", [s for s in Status if s not in (Status.OK, Status.IMPOSSIBLE, Status.INFRASTRUCTURE)]
)
def test_any_failure_inside_gate_1_counts_compile_0(status: Status) -> None:
    run = score(verdict("0", status, gate=Gate.COMPILE))
    assert (run.compile_rate, run.correct_rate, run.shapes[0].s) == (0, 0, None)
    assert run.shapes[0].status == status


def test_missing_records_are_missing() -> None:
    run = score(verdict("0"), shapes="01")
    assert run.operators[0].counts == {"missing": 1, "ok": 1}
    assert (run.complete, run.s_agg, run.correct_rate) == (False, None, 1)
    assert "alpha shape 1 is missing" in run.incomplete[0]
    empty = score()
    assert (empty.complete, empty.s_covered, empty.compile_rate, empty.weight_covered) == (
        False,
        None,
        None,
        0,
    )


def test_two_verdicts_of_one_shape_are_refused() -> None:
    with pytest.raises(UserError, match="two verdicts of candidate on alpha shape 0"):
        score(verdict("0"), verdict("0"))


def test_verdicts_that_nobody_asked_for_change_nothing() -> None:
    run = score(verdict("0"), verdict("9", time_us=10.1))
    assert run.s_agg == 0.5
    assert "1 verdicts that the run was not asked for are ignored" in run.notes


@pytest.mark.parametrize("weights", [{"alpha": 0.0}, {"alpha": -1.0}, {"alpha": math.nan}, {"alpha": math.inf}])
def test_weights_that_are_none(weights: dict[str, float]) -> None:
    with pytest.raises(ProblemError, match="weight"):
        score(verdict("0"), release_weights=weights)


def test_one_without_isolation_is_never_ranked() -> None:
    run = score(verdict("0"), isolation=Isolation.UNSAFE)
    assert (run.complete, run.partial, run.ranked) == (True, False, False)
    assert any("isolation was none" in note for note in run.notes)
    assert score(verdict("0"), isolation=Isolation.NATIVE).ranked


def test_a_stand_in_never_enters_a_score_but_is_judged() -> None:
    run = score(verdict("0"), verdict("1", time_us=1.0, stand_in=True), shapes="01")
    assert (run.s_covered, run.s_agg, run.partial) == (0.5, None, True)  # even where T < T_SOL
    assert run.shapes[1].status is Status.OK
    only = score(verdict("0", stand_in=True))
    assert (only.operators[0].s, only.s_covered, only.weight_covered) == (None, None, 0)
    assert only.correct_rate == 1


def test_the_reference_counts_only_on_the_same_sizes() -> None:
    eager = verdict("0", subject="eager", time_us=40)
    assert score(verdict("0"), eager).speedup_over_eager == 2
    assert score(verdict("0"), eager.model_copy(update={"dims": {"n": 9}})).speedup_over_eager is None
    assert score(verdict("0"), eager.model_copy(update={"status": Status.CRASH})).speedup_over_eager is None
    assert score(verdict("0", Status.WRONG_VALUES), eager).speedup_over_eager is None


def calibration(taken_at: str, bandwidth: float = 1e12, device: str = "cpu") -> Calibration:
    roofline = Roofline(device=device, peak_flops={"bf16": 1e15}, bandwidth_bytes_per_s=bandwidth)
    return Calibration(taken_at=taken_at, roofline=roofline)


BEFORE, AFTER = calibration("2026-11-29T10:00:00+00:00"), calibration("2026-11-29T10:30:00+00:00", 2e12)
CPU = manifest({"alpha": ("0",)}, roofline=None, device="cpu")


def test_a_cpu_run_needs_calibrations_around_it() -> None:
    run = score_run(CPU, [verdict("0")], [BEFORE, AFTER])  # AFTER tells the second of the last verdict
    assert (run.s_agg, run.roofline_source) == (0.25, "largest of 2 calibrations")
    run = score_run(CPU, [verdict("0")], [BEFORE])
    assert (run.s_agg, run.s_covered) == (None, 0.5)
    assert run.incomplete == ("there is no calibration after the last verdict",)
    run = score_run(CPU, [verdict("0")], [])
    assert (run.roofline, run.shapes[0].s, run.shapes[0].time_us, run.complete) == (None, None, 20, False)
    late = calibration("2026-11-29T13:00:00+02:00")  # another zone: after the verdict
    assert score_run(CPU, [verdict("0")], [late]).incomplete == ("there is no calibration before the first verdict",)


def test_a_larger_calibration_afterwards_only_lowers_s() -> None:
    fast = score_run(CPU, [verdict("0", time_us=8)], [BEFORE, AFTER])
    assert fast.s_agg == 0.625
    assert score_run(CPU, [verdict("0", time_us=8)], [BEFORE]).shapes[0].status is Status.IMPOSSIBLE


def test_calibrations_that_can_not_be_used() -> None:
    with pytest.raises(RoofmarkError, match="one device"):
        score_run(CPU, [], [BEFORE, calibration("2026-11-29T10:00:00+00:00", device="other")])
    with pytest.raises(UserError, match="'yesterday' in the run's records is not an ISO 8601 time"):
        score_run(CPU, [verdict("0")], [calibration("yesterday")])


def test_measured_ceilings_never_enter_the_score_of_a_gpu() -> None:
    run = score_run(manifest({"alpha": ("0",)}), [verdict("0")], [calibration("x", 9e12, "G1")])
    assert (run.s_agg, run.roofline_source) == (0.5, "vendor's constants")


FINE_FOR_EAGER = (Status.OK, Status.UNSTABLE, Status.OUT_OF_MEMORY, Status.OVER_TIME_BUDGET)


@pytest.mark.parametrize("status", Status)
def test_a_reference_that_ends_badly_leaves_the_run_incomplete(status: Status) -> None:
    eager = verdict("0", status, subject="eager", message="why\nit did")
    run = score(verdict("0"), eager)
    assert run.complete == run.ranked == (status in FINE_FOR_EAGER)
    assert run.incomplete == (() if run.complete else (f"alpha shape 0: the eager reference is {status}: why it did",))
    assert (run.s_agg is None) != run.complete
    assert run.s_covered == 0.5
    stranger = score(verdict("0"), eager.model_copy(update={"shape_id": "9"}))
    assert stranger.complete


def test_eager_s_is_over_the_shapes_that_s_speaks_of() -> None:
    def eager(shape: str, time_us: float) -> Verdict:
        return verdict(shape, subject="eager", time_us=time_us)

    slow, quick, none = eager("0", 100), eager("1", 20), verdict("2", Status.OUT_OF_MEMORY, subject="eager")
    passed = [verdict("0"), verdict("1", Status.CRASH), verdict("2")]
    alpha = score(*passed, slow, quick, none, shapes="012").operators[0]
    assert (alpha.eager_s, alpha.eager_shapes, alpha.s_shapes) == (0.1, 1, 2)
    failed = [verdict(shape, Status.CRASH) for shape in "012"]
    alpha = score(*failed, slow, quick, none, shapes="012").operators[0]
    assert (alpha.s, alpha.eager_s, alpha.eager_shapes, alpha.s_shapes) == (0, pytest.approx(0.3), 2, 3)


def deployed(time_us: float, gpu: str = "G1", shape: str = "0") -> Baseline:
    return Baseline(shape_id=shape, gpu=gpu, backend="vendor", time_us=time_us)


@pytest.mark.parametrize(("gpu", "ratio"), [("G1", 1.5), ("g1", 1.5), ("G2", None), ("XPU-A", None), ("G", None)])
def test_only_times_of_the_same_gpu_make_a_ratio(gpu: str, ratio: float | None) -> None:
    run = score(verdict("0"), baselines={"alpha": (deployed(30, gpu),)})
    found = (run.shapes[0], run.operators[0], run)
    assert [one.speedup_over_baseline for one in found] == [ratio] * 3
    assert run.shapes[0].baseline_us == (None if ratio is None else 30)
    assert (run.baseline_s_agg is None) == (ratio is None)


@pytest.mark.parametrize("status", [s for s in Status if s is not Status.OK])
def test_a_shape_that_did_not_pass_makes_no_ratio(status: Status) -> None:
    run = score(verdict("0", status), baselines={"alpha": (deployed(30),)})
    assert (run.shapes[0].baseline_us, run.speedup_over_baseline) == (30, None)


def test_a_stand_in_is_never_held_against_a_deployed_time() -> None:
    run = score(verdict("0", stand_in=True), baselines={"alpha": (deployed(30),)})
    one = run.shapes[0]
    assert (one.baseline_us, one.baseline_s, one.speedup_over_baseline) == (None, None, None)
    assert (run.operators[0].baseline_s, run.speedup_over_baseline, run.baseline_s_agg) == (None, None, None)


def test_a_cpu_run_has_no_ratio_to_a_deployed_kernel() -> None:
    here = manifest({"alpha": ("0",)}, roofline=None, device="cpu", baselines={"alpha": (deployed(30, "cpu"),)})
    assert score_run(here, [verdict("0")], [BEFORE, AFTER]).speedup_over_baseline is None


def test_a_deployed_kernel_above_the_roofline_leaves_the_run_incomplete() -> None:
    run = score(verdict("0"), baselines={"alpha": (deployed(8),)})
    assert run.incomplete == ("alpha shape 0: the deployed kernel reaches S = 1.250, so the bound is wrong",)
    assert (run.operators[0].baseline_s, run.baseline_s_agg, run.s_agg) == (None, None, None)


def test_the_deployed_kernels_own_s_agg_needs_all_operators_and_the_whole_release() -> None:
    both = manifest({"alpha": "0", "beta": "0"}, baselines={"alpha": (deployed(30),)})
    verdicts = [verdict("0", operator=operator) for operator in ("alpha", "beta")]
    run = score_run(both, verdicts, ())
    assert (run.speedup_over_baseline, run.speedup_over_baseline_operators, run.baseline_s_agg) == (1.5, 1, None)
    half = manifest({"alpha": "0"}, release_weights={"alpha": 0.5, "beta": 0.5}, baselines={"alpha": (deployed(25),)})
    run = score_run(half, verdicts[:1], ())
    assert (run.partial, run.speedup_over_baseline, run.operators[0].baseline_s) == (True, 1.25, 0.4)
    assert run.baseline_s_agg is None


def test_what_a_deployed_kernel_took_moves_no_s() -> None:
    plain, held = score(verdict("0")), score(verdict("0"), baselines={"alpha": (deployed(11),)})
    for figure in ("s_agg", "s_strict_agg", "s_covered", "compile_rate", "correct_rate", "speedup_over_eager"):
        assert getattr(plain, figure) == getattr(held, figure)


@pytest.mark.parametrize("time_us", [0, -1, math.inf, math.nan])
def test_a_deployed_time_that_is_none_is_refused(time_us: float) -> None:
    with pytest.raises(ValueError, match="time_us"):
        deployed(time_us)
