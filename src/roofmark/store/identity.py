"""What makes two sessions one run, and what makes two runs comparable."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from roofmark.errors import StoreError
from roofmark.records import Manifest, OperatorPlan

Pair = tuple[str, str, Any, Any]

# Parts of `Manifest.environment` that change what is measured. Absent keys are not compared; all other
# keys (host name, process, kernel release…) may differ between the sessions of a run.
ENVIRONMENT_KEY = ("roofmark", "python", "torch", "numba", "triton", "cuda", "driver", "cpu", "cores", "gpu")


def check_same_run(there: Manifest, here: Manifest, path: Path) -> None:
    """Refuses, with a `StoreError` that names the first field that differs, unless `here` may continue `there`.

    Compared: release hash and weights, backend, device, roofline, isolation, config, and of each plan the
    operator, weight, shapes and candidate hash; of the environment `ENVIRONMENT_KEY`. Not compared: run_id,
    started_at, the release's name, the deployed kernels' times and the candidates' names (the hashes of release and
    candidate decide).
    """
    for what, name, old, new in _differences(there, here):
        raise StoreError(
            f"{path} holds a run of another {what}: {name} is {_short(old)} there and {_short(new)} here",
            hint="write to another directory",
        )


def _differences(a: Manifest, b: Manifest) -> Iterator[Pair]:
    """(what differs, the field's name, its value in `a`, in `b`), the most telling first."""
    pairs: list[Pair] = [
        ("release", "release_sha256", a.release_sha256, b.release_sha256),
        ("backend", "backend", a.backend, b.backend),
        ("device", "device", a.device, b.device),
        ("set of operators", "plans", _operators(a), _operators(b)),
    ]
    if _operators(a) == _operators(b):
        for old, new in zip(a.plans, b.plans, strict=True):
            pairs += _plan_pairs(old, new)
    pairs += [
        ("roofline", "roofline", a.roofline, b.roofline),
        ("release", "release_weights", a.release_weights, b.release_weights),
        ("isolation level", "isolation", a.isolation.value, b.isolation.value),
    ]
    keys = sorted(a.config.keys() | b.config.keys())
    pairs += [("configuration", f"config.{key}", a.config.get(key), b.config.get(key)) for key in keys]
    both = a.environment.keys() & b.environment.keys()
    pairs += [
        ("environment", f"environment.{key}", a.environment[key], b.environment[key])
        for key in ENVIRONMENT_KEY
        if key in both
    ]
    return (pair for pair in pairs if pair[2] != pair[3])


def _plan_pairs(a: OperatorPlan, b: OperatorPlan) -> list[Pair]:
    """What is compared of the plans of one operator."""
    name = a.operator
    return [
        ("candidate", f"candidate_sha256 of {name}", a.candidate_sha256, b.candidate_sha256),
        ("set of shapes", f"shape_ids of {name}", a.shape_ids, b.shape_ids),
        ("release", f"all_shape_ids of {name}", a.all_shape_ids, b.all_shape_ids),
        ("release", f"weight of {name}", a.weight, b.weight),
    ]


def _operators(manifest: Manifest) -> tuple[str, ...]:
    """The operators of the plans, in order."""
    return tuple(plan.operator for plan in manifest.plans)


def _short(value: Any) -> str:
    """A value in at most 48 characters: hashes by their first 12, sequences joined."""
    if isinstance(value, tuple):
        value = ",".join(map(str, value)) or "none"
    text = str(value)
    if len(text) == 64 and set(text) <= set("0123456789abcdef"):
        return text[:12]
    return text if len(text) <= 48 else text[:45] + "..."
