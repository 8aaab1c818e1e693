"""Proves operators: on every shape right answers pass and wrong ones fail, by the very check of gate 2."""

from __future__ import annotations

import json
import multiprocessing
import os
import signal
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass
from pathlib import Path

from roofmark.errors import DeviceError
from roofmark.evaluate.lint.proof import Fault, OperatorProof, ShapeProof, operator_proof
from roofmark.evaluate.progress import Progress, Watch
from roofmark.evaluate.request import sizes_for
from roofmark.operators import Operator, load
from roofmark.records import Shape

__all__ = ["Fault", "OperatorProof", "ShapeProof", "Task", "lint", "plan", "prove"]


@dataclass(frozen=True)
class Task:
    """One shape to prove, with the corner cases that no shape before it has."""

    root: Path
    operator: str
    shape_id: str
    corners: tuple[str, ...]
    device: str
    seed: int


def lint(
    chosen: Sequence[tuple[Operator, Sequence[Shape]]], *, device: str, watch: Watch, jobs: int = 1, seed: int = 0,
    strict: bool = False,
) -> tuple[OperatorProof, ...]:  # fmt: skip
    """What holds of the operators on the shapes chosen; each distinct corner case is run once.

    `ProblemError` where an operator has no zoo, before anything is run; what its files fail at later is a fault.
    """
    from roofmark.operators import zoo

    for operator, _ in chosen:
        zoo.load(operator)
    tasks = [task for operator, shapes in chosen for task in plan(operator, shapes, device, seed)]
    proofs: dict[tuple[str, str], ShapeProof] = {}
    for proof in _run(tasks, jobs, watch):
        proofs[proof.operator, proof.shape_id] = proof
        for fault in proof.faults:
            watch(Progress(fault.line, note=True))
    return tuple(_together(operator, [proofs[operator.name, s.shape_id] for s in shapes], strict)
                 for operator, shapes in chosen)  # fmt: skip


def plan(operator: Operator, shapes: Sequence[Shape], device: str, seed: int) -> list[Task]:
    """A task for each shape; a corner case whose sizes an earlier shape has too is left to that one."""
    seen: set[str] = set()
    tasks = []
    for shape in shapes:
        try:
            corners = operator.corners(sizes_for(shape, device)[0])
        except Exception:  # noqa: BLE001 - the trial tells of it
            corners = {}
        keys = {name: json.dumps([name, sizes], sort_keys=True) for name, sizes in corners.items()}
        new = tuple(name for name, key in keys.items() if key not in seen)
        seen.update(keys.values())
        tasks.append(Task(operator.folder.parent, operator.name, shape.shape_id, new, device, seed))
    return tasks


def prove(task: Task) -> ShapeProof:
    """The proof of one task."""
    from roofmark.evaluate.lint.trial import prove_shape

    operator = load(task.operator, task.root)
    shape = operator.shape(task.shape_id)
    return prove_shape(operator, shape, device=task.device, seed=task.seed, corners=task.corners)


def _run(tasks: Sequence[Task], jobs: int, watch: Watch) -> Iterator[ShapeProof]:
    """The proofs as they come; in processes of their own where there is more than one job."""
    if jobs == 1:
        for done, task in enumerate(tasks):
            watch(Progress(f"{task.operator} shape {task.shape_id}", done, len(tasks)))
            yield prove(task)
        return
    context = multiprocessing.get_context("spawn")
    threads = max(1, (os.cpu_count() or 1) // jobs)
    with ProcessPoolExecutor(jobs, context, initializer=_start, initargs=(threads,)) as pool:
        try:
            futures = {pool.submit(prove, task): task for task in tasks}
            for done, future in enumerate(as_completed(futures), 1):
                task = futures[future]
                watch(Progress(f"{task.operator} shape {task.shape_id}", done, len(tasks)))
                yield future.result()
        except BaseException as error:
            pool.shutdown(wait=False, cancel_futures=True)
            for process in multiprocessing.active_children():
                process.terminate()
            if isinstance(error, BrokenProcessPool):
                raise DeviceError(
                    "a process of the lint was killed", hint="with fewer --jobs it needs less memory"
                ) from error
            raise


def _start(threads: int) -> None:
    """Leaves Ctrl-C to the process that started this one."""
    import torch

    signal.signal(signal.SIGINT, signal.SIG_IGN)
    torch.set_num_threads(threads)


def _together(operator: Operator, shapes: Sequence[ShapeProof], strict: bool) -> OperatorProof:
    from roofmark.operators import zoo

    found = zoo.load(operator)
    on_corners = (f"{corner}: {title}" for corner, title in found.wrong_on_corners)
    wrong = (*found.wrong, *found.special, *on_corners)
    second = found.second is not None
    return operator_proof(operator.name, len(operator.shapes), wrong, second, tuple(shapes), strict=strict)
