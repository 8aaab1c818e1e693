"""Judges a candidate: three gates, every shape asked for, one run on disk."""

from __future__ import annotations

import secrets
from collections.abc import Callable
from pathlib import Path

from roofmark.evaluate.config import Config
from roofmark.evaluate.limits import is_open_ended, limits_of
from roofmark.evaluate.progress import Progress, Watch
from roofmark.evaluate.request import Request, manifest_of
from roofmark.evaluate.seeds import Seeds
from roofmark.sandbox.process import Sandbox
from roofmark.store import Run, StoredRun, load_run, open_run, pending

__all__ = ["Config", "Progress", "Request", "Watch", "evaluate"]


def evaluate(
    request: Request, out: Path, watch: Watch, entropy: Callable[[int], bytes] = secrets.token_bytes
) -> StoredRun:
    """The run at `out`, new or resumed, once every shape asked for has its verdict there."""
    limits = limits_of(request.device)
    with open_run(out, manifest_of(request, limits.fixed)) as run:
        for repair in run.repairs:
            watch(Progress(repair, note=True))
        keys = pending(run)
        unclosed = run.resumed and not keys and is_open_ended(load_run(out))
        if run.resumed:
            watch(Progress(resumed(run, len(keys), unclosed), note=True))
        if keys:
            limits.measure(run, watch)
            with sandbox(request) as runner, sandbox(request, twin=runner) as compiler:
                compiler.launch()
                # torch is imported here: what is wrong with a request is told at once, and the zygote imports it too
                from roofmark.evaluate.steps import Steps, open_device

                steps = Steps(request, run, limits, watch, open_device(request.device), Seeds(entropy(32)))
                steps.work_off(keys, runner, compiler)
        if keys or unclosed:
            limits.measure(run, watch)
    return load_run(out)


def sandbox(request: Request, *, twin: Sandbox | None = None) -> Sandbox:
    """A sandbox of the level asked for."""
    return Sandbox(request.isolation, request.device, request.backend, twin=twin)


def resumed(run: Run, left: int, unclosed: bool) -> str:
    """What is said of a run that was there before."""
    if not left and not unclosed:
        return f"{run.path} is finished: this is its stored result, and nothing was run"
    judged = len(run.standing)
    return f"resuming {run.path}: {judged} of {judged + left} verdicts are there"
