"""`roofmark score`: the figures of stored runs, from their records alone."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from roofmark.cli.output import JsonOption, check_json_target, emit


def command(
    runs: Annotated[list[Path], typer.Argument(metavar="RUN...", readable=False, help="Directories of runs.")],
    json: JsonOption = None,
) -> None:
    """Score stored runs, each by itself. The same numbers come out on any machine, without torch."""
    from roofmark.report import run_report
    from roofmark.score import score_run
    from roofmark.store import load_run

    check_json_target(json)
    stored = [(path, load_run(path)) for path in runs]
    scores = [(path, score_run(run.manifest, run.verdicts, run.calibrations)) for path, run in stored]
    for _, run in stored:
        for repair in run.repairs:
            print(f"roofmark: {repair}", file=sys.stderr)
    tables = [part for path, score in scores for part in (run_report(score), f"run: {path}\n")]
    emit([{"run": str(path), "score": score} for path, score in scores], json, *tables)
