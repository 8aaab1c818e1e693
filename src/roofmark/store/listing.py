"""The runs under a directory, one summary each, for `roofmark runs`."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

from roofmark.errors import StoreError
from roofmark.records import Record
from roofmark.store.files import clear_errors
from roofmark.store.run import MANIFEST, SUBJECTS, load_run

MAX_DEPTH = 4


class RunSummary(Record):
    """One run in short. `problem` says why it can't be read, and is empty where it can.

    `done` and `total` count shapes judged for both subjects; the score is not here, since scores stand
    above the store: `roofmark.score.score_run(*load_run(summary.path)[:3])` gives it.
    """

    path: Path
    run_id: str = ""
    started_at: str = ""
    operators: tuple[str, ...] = ()
    candidates: tuple[str, ...] = ()
    backend: str = ""
    device: str = ""
    done: int = 0
    total: int = 0
    repairs: tuple[str, ...] = ()
    problem: str = ""


def find_runs(root: Path) -> list[RunSummary]:
    """A summary of every run at or below `root` (four levels, links not followed), the newest first.

    A directory with a manifest that can't be read is among them, with its `problem`, after the others.
    """
    runs = [_summary(path) for path in _folders(root, MAX_DEPTH)]
    by_path = sorted(runs, key=lambda run: str(run.path))
    return sorted(by_path, key=lambda run: (not run.problem, run.started_at), reverse=True)


def _folders(folder: Path, depth: int) -> Iterator[Path]:
    """The directories at or below `folder` that hold a manifest; a run is not searched for more runs."""
    with clear_errors("list", folder), os.scandir(folder) as entries:
        found = sorted(entries, key=lambda entry: entry.name)
    if any(entry.name == MANIFEST for entry in found):
        yield folder
        return
    for entry in found if depth else ():
        if entry.is_dir(follow_symlinks=False) and os.access(entry.path, os.R_OK | os.X_OK):
            yield from _folders(Path(entry.path), depth - 1)


def _summary(path: Path) -> RunSummary:
    """The run at `path` in short."""
    try:
        manifest, verdicts, _, repairs = load_run(path)
    except StoreError as error:
        return RunSummary(path=path, problem=str(error))
    judged = {(v.subject, v.operator, v.shape_id) for v in verdicts}
    shapes = [(plan.operator, shape) for plan in manifest.plans for shape in plan.shape_ids]
    return RunSummary(
        path=path,
        run_id=manifest.run_id,
        started_at=manifest.started_at,
        operators=tuple(plan.operator for plan in manifest.plans),
        candidates=tuple(dict.fromkeys(plan.candidate_name for plan in manifest.plans)),
        backend=manifest.backend,
        device=manifest.device,
        done=sum(all((subject, *shape) in judged for subject in SUBJECTS) for shape in shapes),
        total=len(shapes),
        repairs=repairs,
    )
