"""Small records for the tests of the score: one microsecond moves 1e6 bytes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from roofmark.records import (
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

ROOFLINE = Roofline(device="G1", peak_flops={"bf16": 1e15}, bandwidth_bytes_per_s=1e12)
TEN_US = Work(flops={"bf16": 10**7}, bytes_read=6 * 10**6, bytes_written=4 * 10**6)


def manifest(shapes: dict[str, Sequence[str]], **fields: Any) -> Manifest:
    """A GPU run that was asked for all of a release with these shapes; weights are equal unless given."""
    weights = fields.pop("release_weights", {operator: 1 / len(shapes) for operator in shapes})
    baselines = fields.pop("baselines", {})
    plans = tuple(
        OperatorPlan(
            operator=operator,
            weight=weights.get(operator, 0.0),
            shape_ids=tuple(ids),
            all_shape_ids=tuple(ids),
            candidate_sha256="c" * 64,
            candidate_name="kernel.py",
            baselines=baselines.get(operator, ()),
        )
        for operator, ids in shapes.items()
    )
    given: dict[str, Any] = {
        "run_id": "r1",
        "release": "test",
        "release_sha256": "a" * 64,
        "backend": "triton",
        "device": "G1",
        "roofline": ROOFLINE,
        "config": {},
        "isolation": Isolation.BUBBLEWRAP,
        "environment": {},
        "started_at": "2026-11-29T10:00:00+00:00",
        **fields,
    }
    return Manifest(plans=plans, release_weights=weights, **given)


def verdict(shape: str, status: Status = Status.OK, time_us: float | None = 20.0, **fields: Any) -> Verdict:
    timing = None
    if time_us is not None:
        timing = Timing(samples_us=(time_us,), median_us=time_us, interval_us=Interval(low=time_us, high=time_us))
    given: dict[str, Any] = {
        "subject": "candidate",
        "operator": "alpha",
        "dims": {"n": 4},
        "stand_in": False,
        "gate": Gate.PERFORMANCE if status is Status.OK else Gate.CORRECTNESS,
        "compiled": Compiled.ARTEFACT,
        "work": TEN_US,
        "timing": timing,
        "wall_s": 1.0,
        "finished_at": "2026-11-29T10:30:00.700+00:00",
        **fields,
    }
    return Verdict(shape_id=shape, status=status, **given)
