"""`roofmark runs`: what has been judged here."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from roofmark.cli.output import JsonOption, check_json_target, console, emit, new_table

if TYPE_CHECKING:
    from roofmark.store import RunSummary

WIDE = 100


def command(
    folder: Annotated[Path, typer.Argument(metavar="[DIR]", readable=False, help="Where the runs lie.")] = Path("runs"),
    json: JsonOption = None,
) -> None:
    """List the runs of a directory, newest first."""
    from roofmark.errors import UserError
    from roofmark.report import words
    from roofmark.store import find_runs

    check_json_target(json)
    if not os.path.exists(folder) and folder == Path("runs"):
        emit([], json, "no runs yet: roofmark evaluate makes one")
        return
    if not os.path.isdir(folder):
        raise UserError(f"{str(folder)!r} is no directory", hint="name one that holds runs")
    wide = console().width >= WIDE
    more = ("backend", "device", "judged") if wide else ()
    table = new_table("operator", "candidate", *more, right=("S",), fold=("run",))
    records = []
    for run in find_runs(folder):
        scores, problem = scores_of(run)
        count = f"{run.done}/{run.total}" if run.total else ""
        short = f"{run.done} of {run.total} shapes judged" if run.done < run.total else ""
        said = "; ".join(part for part in (problem, *run.repairs, short) if part)
        table.add_row(
            " ".join(run.operators), " ".join(run.candidates), *((run.backend, run.device, count) if wide else ()),
            " ".join(map(words.score, scores)), f"{run.path}\n{words.safe(said)}" if said else str(run.path),
        )  # fmt: skip
        records.append({**run.model_dump(mode="json"), "problem": problem, "s": scores})
    emit(records, json, table if records else f"no runs in {folder}")


def scores_of(run: RunSummary) -> tuple[list[float | None], str]:
    """S of each operator of a run, or why there is none."""
    from roofmark.errors import RoofmarkError
    from roofmark.score import score_run
    from roofmark.store import load_run

    if run.problem:
        return [], run.problem
    try:
        stored = load_run(run.path)
        score = score_run(stored.manifest, stored.verdicts, stored.calibrations)
    except RoofmarkError as error:
        return [], str(error)
    return [operator.s for operator in score.operators], ""
