"""`roofmark evaluate`: one candidate through the gates."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from roofmark.cli.boundary import Stopped, tell
from roofmark.cli.output import JsonOption, ReleaseOption, check_json_target, emit
from roofmark.cli.progress import Watch, watcher

if TYPE_CHECKING:
    from roofmark.evaluate import Request
    from roofmark.operators import Operator
    from roofmark.store import StoredRun

RUNS = Path("runs")


def command(
    file: Annotated[str, typer.Argument(metavar="FILE", help="A file with class Model; or `oracle`, or `noop`.")],
    operator: Annotated[str, typer.Option("--operator", "-o", metavar="NAME", help="The operator it computes.")],
    shapes: Annotated[str | None, typer.Option(metavar="IDS", help="Shapes, as in 0,3; all without it.")] = None,
    device: Annotated[str, typer.Option(metavar="DEVICE", help="auto, cpu or cuda.")] = "auto",
    release: ReleaseOption = None,
    backend: Annotated[
        str | None, typer.Option(metavar="NAME", help="The kernel language; without it, by the imports of FILE.")
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(metavar="DIR", readable=False, help="Where the run lies, new or old; runs/ without it."),
    ] = None,
    allow_unsafe: Annotated[
        bool, typer.Option("--allow-unsafe", help="Run FILE unconfined where nothing can isolate it.")
    ] = False,
    json: JsonOption = None,
) -> None:
    """Compile, check, time and score one candidate.

    Exit code 0: every shape passed; 1: the candidate failed on some; 2: bad input, or a failure of ours.
    """
    check_json_target(json)
    with watcher("loading torch") as watch:
        request = make_request(file, operator, shapes, device, release, backend, allow_unsafe)
        path = out or open_run_of(request) or new_path(request)
        run = run_at(path, request, watch)
    from roofmark.report import run_report
    from roofmark.score import score_run

    score = score_run(run.manifest, run.verdicts, run.calibrations)
    emit({"run": str(path), "score": score, "verdicts": list(run.verdicts)}, json, run_report(score), f"run: {path}")
    raise typer.Exit(exit_code(run))


def exit_code(run: StoredRun) -> int:
    """0 where every shape passed, 1 where the candidate failed, 2 where the referee did."""
    ours = [v.shape_id for v in run.verdicts if v.status == "infrastructure"]
    if ours:
        return tell(f"our own failure on shape {', '.join(dict.fromkeys(ours))}; the same command judges it again")
    return int(any(v.status != "ok" for v in run.verdicts if v.subject == "candidate"))


def make_request(
    file: str, operator: str, shapes: str | None, device: str, release: str | None, backend: str | None,
    allow_unsafe: bool,
) -> Request:  # fmt: skip
    """The request that the options describe; every mistake in them is told here."""
    from roofmark.evaluate import request as make
    from roofmark.releases import sets

    name, root = sets.resolve(release)
    chosen = sets.operator(operator, root)
    candidate = make.read_candidate(file, chosen)
    picked = make.choose_shapes(chosen, shapes)
    where = make.choose_device(device)
    check_work(chosen, [make.sizes_for(shape, where)[0] for shape in picked])
    language = make.choose_backend(backend, candidate, where)
    from roofmark.evaluate import Config, Request
    from roofmark.sandbox import policy

    return Request(
        candidate,
        chosen,
        picked,
        where,
        language,
        name,
        root,
        Config.for_device(where),
        policy.choose(allow_unsafe, where),
    )


def check_work(operator: Operator, sizes: list[dict[str, Any]]) -> None:
    """Refuses an operator whose work model can't tell the work of a shape, before anything is run."""
    from roofmark.errors import ProblemError, RoofmarkError

    for one in sizes:
        try:
            operator.work(one)
        except RoofmarkError:
            raise
        except Exception as error:
            where = f"{operator.folder / 'work.py'} fails on {one}"
            raise ProblemError(f"{where}: {type(error).__name__}: {error}") from error


def run_at(path: Path, request: Request, watch: Watch) -> StoredRun:
    """The finished run at `path`."""
    from roofmark.evaluate import evaluate

    try:
        return evaluate(request, path, watch)
    except Stopped as stop:
        stop.hint = f"the same command resumes {path}"
        raise


def new_path(request: Request) -> Path:
    """A fresh place under `runs/`."""
    from roofmark.evaluate.request import manifest_of

    run_id = manifest_of(request, None).run_id
    path, count = RUNS / run_id, 1
    while path.exists():
        count += 1
        path = RUNS / f"{run_id}-{count}"
    return path


def open_run_of(request: Request) -> Path | None:
    """An unfinished run under `runs/` of this very request, so that the same command resumes."""
    from roofmark.errors import StoreError
    from roofmark.evaluate.limits import is_open_ended, limits_of
    from roofmark.evaluate.request import manifest_of
    from roofmark.store import check_same_run, find_runs, load_run

    if not RUNS.is_dir():
        return None
    here = manifest_of(request, limits_of(request.device).fixed)
    for summary in find_runs(RUNS):
        if summary.problem:
            continue
        try:
            stored = load_run(summary.path)
            check_same_run(stored.manifest, here, summary.path)
        except StoreError:
            continue
        ours = any(v.status == "infrastructure" for v in stored.verdicts)
        if summary.done < summary.total or ours or is_open_ended(stored):
            return summary.path
    return None
