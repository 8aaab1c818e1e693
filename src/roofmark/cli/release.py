"""`roofmark release`: frozen sets of operators, shapes, weights and rooflines."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from roofmark.cli.output import JsonOption, check_json_target, emit, new_table

if TYPE_CHECKING:
    from roofmark.releases import Release, ReleaseOperator, Totals
    from roofmark.releases.gpus import Fit

app = typer.Typer(help="Releases: frozen sets of operators, shapes and weights.", no_args_is_help=True)
LATEST = "2026.07"
MAX_CELL = 160
Name = Annotated[str, typer.Argument(metavar="NAME|DIR", help="A release by its name, or a directory.")]


@app.command("list")
def list_(json: JsonOption = None) -> None:
    """List the releases that come with Roofmark."""
    from roofmark import releases

    check_json_target(json)
    found = [releases.load(name) for name in releases.names()]
    table = new_table("release", "frozen", right=("operators", "shapes"), fold=("content",))
    records = []
    for one in found:
        table.add_row(one.name, one.date, str(len(one.operators)), str(len(one.shapes)), one.content_sha256[:16])
        head = one.model_dump(mode="json", include={"name", "date", "kind", "content_sha256"})
        records.append({**head, "operators": len(one.operators), "shapes": len(one.shapes)})
    emit(records, json, table)


@app.command()
def show(
    name: Name,
    gpu: Annotated[
        str | None, typer.Option(metavar="NAME", help="Which shapes the memory of this GPU does not hold.")
    ] = None,
    json: JsonOption = None,
) -> None:
    """Show a release: weights, regimes, bounds, and what the deployed kernels reach. The JSON has a record a shape."""
    from roofmark import releases

    check_json_target(json)
    release = releases.load(name)
    if gpu is not None:
        from roofmark.releases.gpus import fits

        found = fits(release, gpu)
        emit(list(found), json, *fit_tables(release, found))
        return
    emit(list(release.shapes), json, heading(release), operators_table(release), *totals_lines(release))


@app.command()
def build(
    out: Annotated[Path, typer.Option(metavar="DIR", readable=False, help="A new directory.")],
    release: Name = LATEST,
    visible: Annotated[bool, typer.Option("--visible", help="Only what an agent may see.")] = False,
    redact: Annotated[bool, typer.Option("--redact", help="No names of models, applications and hosts.")] = False,
    json: JsonOption = None,
) -> None:
    """Freeze a release into a directory: five files an operator, weights, constants, and a hash of each file."""
    from roofmark import releases

    check_json_target(json)
    done = releases.build(release, out, visible=visible, redact=redact)
    what = "what an agent may see of " if visible else ""
    text = f"{what}{done.name}: {done.operators} operators, {done.shapes} shapes, content {done.content_sha256[:16]}"
    emit(done, json, f"{text}\n{done.files + 1} files in {done.path}")


@app.command()
def verify(release: Name = LATEST, json: JsonOption = None) -> None:
    """Look at every file of a release anew. Exit code 0: all are as they were frozen; 1: some are not, and which."""
    from roofmark import releases

    check_json_target(json)
    found = releases.verify(release)
    state = "as frozen" if not found.problems else f"{len(found.problems)} problems"
    emit(
        found, json, f"{found.name}: {found.files} files, content {found.content_sha256[:16]}: {state}", *found.problems
    )
    raise typer.Exit(int(bool(found.problems)))


@app.command()
def diff(before: Name, after: Name, json: JsonOption = None) -> None:
    """Tell what is different between two releases. Exit code 0: nothing; 1: something."""
    from roofmark import releases

    check_json_target(json)
    found = releases.diff(releases.load(before), releases.load(after))
    table = new_table("operator", "shape", fold=("what", "before", "after"))
    for one in found:
        table.add_row(one.operator, one.shape_id, one.field, cell(one.before), cell(one.after))
    emit(list(found), json, table if found else "nothing differs")
    raise typer.Exit(int(bool(found)))


def cell(value: Any) -> str:
    """A value of a change in one short line."""
    from json import dumps

    text = value if isinstance(value, str) else dumps(value, ensure_ascii=False)
    return text if len(text) <= MAX_CELL else f"{text[:MAX_CELL]}..."


@app.command()
def retarget(
    gpu: Annotated[str, typer.Option("--gpu", metavar="NAME", help="A GPU of the catalogue.")],
    name: Name = LATEST,
    json: JsonOption = None,
) -> None:
    """Print the least time of every shape on another GPU."""
    from roofmark import releases
    from roofmark.releases.gpus import retarget as bounds
    from roofmark.report.words import us

    check_json_target(json)
    found = bounds(releases.load(name), gpu)
    table = new_table("operator", "shape", right=(f"T_SOL µs on {gpu}",))
    for one in found:
        table.add_row(one.operator, one.shape_id, us(one.t_sol_us))
    emit(list(found), json, table)


def heading(release: Release) -> str:
    """What the release is, in a line."""
    date = f", frozen {release.date}" if release.date else ""
    return f"release {release.name} ({release.kind}{date}), content {release.content_sha256[:16]}\n"


def operators_table(release: Release) -> Any:
    """A row an operator, the heaviest first."""
    gpu = next(iter(release.constants), None)
    table = new_table(
        "operator", "regime", "dtype", "from", right=("shapes", "weight", f"T_SOL µs {gpu or ''}", "deployed S")
    )
    for one in sorted(release.operators, key=lambda o: -o.weight):
        table.add_row(one.name, one.regime, one.dtype.removesuffix("_e4m3"), one.upstream, str(len(one.shapes)),
                      f"{one.weight:.4f}", *bound_cells(one, gpu))  # fmt: skip
    return table


def bound_cells(operator: ReleaseOperator, gpu: str | None) -> tuple[str, str]:
    """The least and greatest bound of an operator's shapes, and the deployed kernels' median S."""
    from roofmark.releases.totals import deployed_s
    from roofmark.report.words import score, us

    if gpu is None:
        return "-", "-"
    bounds = [shape.t_sol_us[gpu] for shape in operator.shapes]
    s = deployed_s(operator, gpu, lambda shape, name: shape.t_sol_us[name])
    return f"{us(min(bounds))}..{us(max(bounds))}", score(s)


def totals_lines(release: Release) -> list[str]:
    """The release in a few lines."""
    from roofmark.releases import totals

    found: Totals = totals(release)
    lines = [
        f"\n{found.operators} operators, {found.shapes} shapes, weights sum to {found.weight:.6g}",
        f"regimes     {counts(found.regimes)}",
        f"dtypes      {counts(found.dtypes)}",
        f"shapes from {counts(found.frameworks)}",
        f"deployed by {counts(found.backends)}",
    ]
    for gpu, s in found.deployed_s.items():
        published = found.deployed_s_published[gpu]
        lines.append(f"deployed S_agg on {gpu}: {s:.4f}; {published:.4f} by the work as published")
    return lines


def counts(words: dict[str, int]) -> str:
    """Words with how often each occurs."""
    return ", ".join(f"{word} {count}" for word, count in words.items()) or "none"


def fit_tables(release: Release, found: tuple[Fit, ...]) -> list[Any]:
    """The shapes that a card does not hold, and what weight they carry."""
    from roofmark.releases.gpus import weight_out
    from roofmark.report.words import percent, si

    out = [one for one in found if not one.fits]
    most = max(found, key=lambda one: one.needs_bytes)
    lines = [
        f"{len(out)} of {len(found)} shapes do not fit {most.gpu} ({si(most.memory_bytes, 'B')}); "
        f"they carry {percent(weight_out(release, found))} of the weight",
        f"the largest is {most.operator} {most.shape_id}: {si(most.needs_bytes, 'B')}",
        "a shape needs its inputs twice, its outputs three times, and what the check takes",
    ]
    if not out:
        return lines
    table = new_table("operator", "shape", right=("needs",))
    for one in out:
        table.add_row(one.operator, one.shape_id, si(one.needs_bytes, "B"))
    return [*lines, "", table]
