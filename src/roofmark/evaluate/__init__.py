"""Judges a candidate: three gates, every shape asked for, one run on disk."""

from __future__ import annotations

import secrets
from collections.abc import Callable
from pathlib import Path

from roofmark.evaluate.config import Config
from roofmark.evaluate.limits import limits_of
from roofmark.evaluate.progress import Progress, Watch
from roofmark.evaluate.request import Request, manifest_of
from roofmark.evaluate.seeds import Seeds
from roofmark.evaluate.steps import Steps, open_device
from roofmark.store import StoredRun, load_run, open_run, pending

__all__ = ["Config", "Progress", "Request", "Watch", "evaluate"]


def evaluate(
    request: Request, out: Path, watch: Watch, entropy: Callable[[int], bytes] = secrets.token_bytes
) -> StoredRun:
    """The run at `out`, new or resumed, once every shape asked for has its verdict there."""
    limits = limits_of(request.device)
    with open_run(out, manifest_of(request, limits.fixed)) as run:
        for repair in run.repairs:
            watch(Progress(repair, note=True))
        todo = pending(run)
        if todo:
            limits.measure(run, watch)
            steps = Steps(request, run, limits, watch, open_device(request.device), Seeds(entropy(32)))
            steps.work_off(todo)
            limits.measure(run, watch)
    return load_run(out)
