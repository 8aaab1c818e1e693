"""Small records for the tests of the store."""

from __future__ import annotations

from typing import Any

from roofmark.records import (
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

ROOFLINE = Roofline(device="cpu", peak_flops={"fp32": 1e11}, bandwidth_bytes_per_s=1e10)


def plan(operator: str = "rms_norm", shapes: tuple[str, ...] = ("0", "1"), **fields: Any) -> OperatorPlan:
    given = {"weight": 1.0, "candidate_sha256": "c" * 64, "candidate_name": "kernel.py", **fields}
    return OperatorPlan(operator=operator, shape_ids=shapes, all_shape_ids=shapes, **given)


def manifest(**fields: Any) -> Manifest:
    given = {
        "run_id": "r1",
        "release": "paper",
        "release_sha256": "a" * 64,
        "backend": "numba",
        "device": "cpu",
        "roofline": None,
        "plans": (plan(),),
        "release_weights": {"rms_norm": 1.0},
        "config": {"seeds": 5},
        "isolation": Isolation.BUBBLEWRAP,
        "environment": {"torch": "2.13.0", "cores": "4", "driver": "580.1", "host": "one"},
        "started_at": "2026-11-29T10:00:00+00:00",
        **fields,
    }
    return Manifest(**given)


def verdict(subject: str = "candidate", shape: str = "0", **fields: Any) -> Verdict:
    given = {
        "operator": "rms_norm",
        "dims": {"token_count": 4, "hidden_size": 8},
        "stand_in": False,
        "status": Status.OK,
        "gate": Gate.PERFORMANCE,
        "compiled": Compiled.ARTEFACT,
        "work": Work(flops={"fp32": 100}, bytes_read=1000, bytes_written=1000),
        "timing": Timing(samples_us=(1.1, 1.2), median_us=1.15, interval_us=Interval(low=1.1, high=1.2)),
        "wall_s": 0.5,
        "finished_at": "2026-11-29T10:01:00+00:00",
        **fields,
    }
    return Verdict(subject=subject, shape_id=shape, **given)


def calibration(taken_at: str = "2026-11-29T10:00:00+00:00") -> Calibration:
    return Calibration(taken_at=taken_at, roofline=ROOFLINE)
