"""The golden runs: small stored runs with one example of each row of the status table and of each aggregate.

`python tests/golden/golden_runs.py` writes them anew after a wanted change; the tests compare, never write.
Figures are chosen so that a person can check every score in the head: see test_golden.py.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from roofmark.records import (
    Baseline,
    Calibration,
    Compiled,
    Gate,
    Interval,
    Isolation,
    Manifest,
    OperatorPlan,
    Roofline,
    Status,
    Timing,
    Verdict,
    Work,
)
from roofmark.score import score_run
from roofmark.store import append_calibration, append_verdict, load_run, open_run

HERE = Path(__file__).parent

# One microsecond moves 1e6 bytes or computes 1e9 FLOP.
G1 = Roofline(device="G1", peak_flops={"bf16": 1e15}, bandwidth_bytes_per_s=1e12)
MEMORY = Work(flops={"bf16": 10**7}, bytes_read=6 * 10**6, bytes_written=4 * 10**6)  # T_SOL 10 µs, 1 FLOP/byte
COMPUTE = Work(flops={"bf16": 10**11}, bytes_read=10**6, bytes_written=10**6)  # T_SOL 100 µs
INDEX = Work(flops={}, bytes_read=10**6, bytes_written=10**6)  # T_SOL 2 µs, no arithmetic
CPU_WORK = Work(flops={"fp32": 10**6}, bytes_read=6 * 10**5, bytes_written=4 * 10**5)  # 1e6 bytes


class Golden(NamedTuple):
    """The records of one golden run."""

    manifest: Manifest
    verdicts: tuple[Verdict, ...]
    calibrations: tuple[Calibration, ...] = ()


def timing(time_us: float, floor_us: float | None = None) -> Timing:
    """T with an interval from 0.8 T to 1.25 T, so that S has one from 0.8 S to 1.25 S."""
    interval = Interval(low=0.8 * time_us, high=1.25 * time_us)
    samples = (0.8 * time_us, time_us, 1.25 * time_us)
    return Timing(samples_us=samples, median_us=time_us, interval_us=interval, floor_us=floor_us)


def verdict(operator: str, shape: int, status: Status, work: Work = MEMORY, **fields: Any) -> Verdict:
    """A candidate's verdict; `time_us` and `floor_us` make its timing."""
    time_us, floor_us = fields.pop("time_us", None), fields.pop("floor_us", None)
    given: dict[str, Any] = {
        "subject": "candidate",
        "dims": {"token_count": 100 + shape, "hidden_size": 4096},
        "stand_in": False,
        "gate": Gate.PERFORMANCE if status is Status.OK else Gate.CORRECTNESS,
        "compiled": Compiled.ARTEFACT,
        "timing": None if time_us is None else timing(time_us, floor_us),
        "wall_s": 1.0,
        "finished_at": "2026-11-29T10:30:00+00:00",
        **fields,
    }
    return Verdict(operator=operator, shape_id=str(shape), status=status, work=work, **given)


def eager(operator: str, shape: int, time_us: float, work: Work = MEMORY, **fields: Any) -> Verdict:
    """The reference's verdict on a shape."""
    fields = {"compiled": Compiled.NOT_RUN, **fields}
    return verdict(operator, shape, Status.OK, work, subject="eager", time_us=time_us, **fields)


def manifest(run_id: str, plans: dict[str, tuple[int, int]], weights: dict[str, float], **fields: Any) -> Manifest:
    """A manifest; `plans` maps an operator to how many shapes are asked for and how many the release has.

    `baselines` maps an operator to the deployed kernels' times.
    """
    baselines = fields.pop("baselines", {})
    given: dict[str, Any] = {
        "release": "golden",
        "release_sha256": "a" * 64,
        "backend": "triton",
        "device": "G1",
        "roofline": G1,
        "config": {"seeds": 5},
        "isolation": Isolation.BUBBLEWRAP,
        "environment": {"torch": "2.13.0"},
        "started_at": "2026-11-29T10:00:00+00:00",
        **fields,
    }
    planned = tuple(
        OperatorPlan(
            operator=operator,
            weight=weights[operator],
            shape_ids=tuple(map(str, range(asked))),
            all_shape_ids=tuple(map(str, range(every))),
            candidate_sha256="c" * 64,
            candidate_name="kernel.py",
            baselines=baselines.get(operator, ()),
        )
        for operator, (asked, every) in plans.items()
    )
    return Manifest(run_id=run_id, plans=planned, release_weights=weights, **given)


def complete() -> Golden:
    """Every row of the table that leaves a run complete (alpha), a plain one (beta), a failed one (gamma)."""
    ok = Status.OK
    alpha = (
        verdict("alpha", 0, ok, time_us=20, floor_us=5, adoption={"triton": 0.75, "framework": 0.25}),
        verdict("alpha", 1, ok, time_us=40, floor_us=16, adoption={"triton": 1.0}),
        verdict(
            "alpha",
            2,
            Status.COMPILE_ERROR,
            gate=Gate.COMPILE,
            compiled=Compiled.FAILED,
            message="no such op: tl.dott",
        ),
        verdict("alpha", 3, Status.CRASH, message="signal 11"),
        verdict("alpha", 4, Status.TIMEOUT, message="no answer in 10 s"),
        verdict("alpha", 5, Status.OUT_OF_MEMORY, message="asked for 300 GB"),
        verdict("alpha", 6, Status.WRONG_SHAPE_OR_DTYPE, message="out is float32, not bfloat16"),
        verdict("alpha", 7, Status.NOT_FINITE, message="NaN at [0, 0]"),
        verdict("alpha", 8, Status.WRONG_VALUES, message="3 of 409600 values off, the worst 12x the tolerance"),
        verdict("alpha", 9, Status.RULE_BROKEN, time_us=1, message="the input was written to"),
        verdict("alpha", 10, Status.OVER_TIME_BUDGET, gate=Gate.PERFORMANCE, time_us=500),
        verdict("alpha", 11, Status.UNSTABLE, gate=Gate.PERFORMANCE, time_us=25),
        verdict("alpha", 12, Status.CRASH, gate=Gate.COMPILE, compiled=Compiled.FAILED, message="signal 6"),
        verdict("alpha", 13, ok, time_us=100, compiled=Compiled.FALLBACK),
        *(eager("alpha", n, 40.0 if n == 0 else 60.0) for n in range(14)),
    )
    beta = (
        verdict("beta", 0, ok, COMPUTE, time_us=200, adoption={"triton": 1.0}),
        verdict("beta", 1, ok, COMPUTE, time_us=125, adoption={"triton": 0.5, "framework": 0.5}),
        verdict("beta", 2, ok, COMPUTE, time_us=160, adoption={"framework": 1.0}),
        *(eager("beta", n, 400, COMPUTE) for n in range(3)),
    )
    gamma = (
        verdict("gamma", 0, Status.WRONG_VALUES, INDEX),
        verdict("gamma", 1, Status.COMPILE_ERROR, INDEX, gate=Gate.COMPILE, compiled=Compiled.FAILED),
    )
    plans = {"alpha": (14, 14), "beta": (3, 3), "gamma": (2, 2)}
    weights = {"alpha": 1.0, "beta": 0.5, "gamma": 0.5}  # they sum to 2
    return Golden(manifest("complete", plans, weights), alpha + beta + gamma)


def incomplete() -> Golden:
    """Every row that makes a run incomplete: each of shapes 1 to 4, and 5 and 6 for their eager references."""
    alpha = (
        verdict("alpha", 0, Status.OK, time_us=20),
        verdict("alpha", 1, Status.IMPOSSIBLE, time_us=5, message="S = 2.000, confirmed by a re-run"),
        verdict("alpha", 2, Status.OK, time_us=8),  # S = 1.25, found when scored
        verdict(
            "alpha",
            3,
            Status.INFRASTRUCTURE,
            compiled=Compiled.NOT_RUN,
            message="the device fell off the bus",
        ),
        # shape 4 is missing
        verdict("alpha", 5, Status.WRONG_VALUES),
        eager("alpha", 5, 4),  # S = 2.5 of the reference itself
        verdict("alpha", 6, Status.OK, time_us=20),
        verdict("alpha", 6, Status.WRONG_VALUES, subject="eager", compiled=Compiled.NOT_RUN, message="y[0] is 3"),
    )
    return Golden(manifest("incomplete", {"alpha": (7, 7)}, {"alpha": 1.0}), alpha)


def partial_cpu() -> Golden:
    """A CPU run: two calibrations, a stand-in, an operator and a shape that nobody asked for."""
    alpha = (
        verdict("alpha", 0, Status.OK, CPU_WORK, time_us=80, adoption={"numba": 1.0}),
        eager("alpha", 0, 100, CPU_WORK),
        verdict("alpha", 1, Status.OK, CPU_WORK, time_us=10, stand_in=True, adoption={"numba": 0.5}),
        eager("alpha", 1, 20, CPU_WORK, stand_in=True),
        verdict("alpha", 2, Status.WRONG_VALUES, CPU_WORK),
        eager("alpha", 2, 100, CPU_WORK),
    )
    calibrations = tuple(
        Calibration(
            taken_at=f"2026-11-29T{hour}:00:00+00:00",
            roofline=Roofline(device="cpu", peak_flops={"fp32": fp32}, bandwidth_bytes_per_s=bandwidth),
        )
        for hour, fp32, bandwidth in ((10, 2e11, 1e10), (11, 1e11, 2e10))
    )
    cpu = {"device": "cpu", "roofline": None, "backend": "numba"}
    weights = {"alpha": 0.75, "beta": 0.25}
    return Golden(manifest("partial_cpu", {"alpha": (3, 4)}, weights, **cpu), alpha, calibrations)


def deployed() -> Golden:
    """A run on a GPU that the release has deployed times of, its name written in another case."""
    alpha = (
        verdict("alpha", 0, Status.OK, time_us=20),
        verdict("alpha", 1, Status.OK, time_us=40),
        verdict("alpha", 2, Status.WRONG_VALUES),
    )
    beta = (
        verdict("beta", 0, Status.OK, COMPUTE, time_us=200),
        verdict("beta", 1, Status.OK, COMPUTE, time_us=125),
    )
    baselines = {
        "alpha": (
            Baseline(shape_id="0", gpu="g1", backend="vendor", time_us=25),
            Baseline(shape_id="0", gpu="g1", backend="slower", time_us=35),
            Baseline(shape_id="0", gpu="G2", backend="vendor", time_us=1),  # another GPU: no ratio
            Baseline(shape_id="1", gpu="g1", backend="vendor", time_us=20),
            Baseline(shape_id="2", gpu="g1", backend="vendor", time_us=12.5),
        ),
        "beta": (
            Baseline(shape_id="0", gpu="g1", backend="vendor", time_us=250),
            Baseline(shape_id="1", gpu="G2", backend="vendor", time_us=150),
        ),
    }
    weights = {"alpha": 0.75, "beta": 0.25}
    plans = {"alpha": (3, 3), "beta": (2, 2)}
    return Golden(manifest("deployed", plans, weights, baselines=baselines), alpha + beta)


RUNS: dict[str, Callable[[], Golden]] = {
    "complete": complete,
    "incomplete": incomplete,
    "partial_cpu": partial_cpu,
    "deployed": deployed,
}


def write(name: str, path: Path) -> None:
    """Writes the golden run to `path`, its score beside it in `score.json`."""
    golden = RUNS[name]()
    with open_run(path, golden.manifest) as run:
        for calibration in golden.calibrations:
            append_calibration(run, calibration)
        for one in golden.verdicts:
            append_verdict(run, one)
    (path / ".lock").unlink()
    stored = load_run(path)
    score = score_run(stored.manifest, stored.verdicts, stored.calibrations)
    text = json.dumps(score.model_dump(mode="json"), indent=1, ensure_ascii=False) + "\n"
    (path / "score.json").write_text(text, encoding="utf-8")


if __name__ == "__main__":
    for each in RUNS:
        shutil.rmtree(HERE / each, ignore_errors=True)
        write(each, HERE / each)
