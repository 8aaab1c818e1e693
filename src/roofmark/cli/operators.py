"""`roofmark operators`: what can be judged."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from roofmark.cli import lint
from roofmark.cli.output import JsonOption, ReleaseOption, check_json_target, console, emit, new_table

if TYPE_CHECKING:
    from roofmark.operators import Operator

app = typer.Typer(help="The operators: what they mean, their shapes and weights.", no_args_is_help=True)
app.command("lint")(lint.command)
MAX_SIZES, WIDE = 18, 100  # what fits beside the figures in 80 columns


@app.command("list")
def list_(release: ReleaseOption = None, json: JsonOption = None) -> None:
    """List the operators with their share of the release's weight."""
    from roofmark.releases import sets

    check_json_target(json)
    root = sets.resolve(release)[1]
    every = [sets.operator(name, root) for name in sets.operator_names(root)]
    total = sum(found.provenance.weight for found in every)
    table = new_table("operator", "dtype", "phase", right=("shapes", "weight"), fold=("meaning",))
    records = []
    for found in every:
        spec, weight = found.spec, found.provenance.weight
        share = f"{100 * weight / total:.1f}%"
        table.add_row(spec.name, spec.dtype, spec.phase, str(len(found.shapes)), share, spec.title)
        records.append({**spec.model_dump(mode="json"), "shapes": len(found.shapes), "weight": weight})
    emit(records, json, table)


@app.command()
def show(
    name: Annotated[str, typer.Argument(metavar="NAME", help="An operator.")],
    release: ReleaseOption = None,
    json: JsonOption = None,
) -> None:
    """Show one operator: meaning, contract, the reference that a candidate must match, shapes with their work."""
    from roofmark.releases import sets

    check_json_target(json)
    found = sets.operator(name, sets.resolve(release)[1])
    records = [
        {"shape": s, "work": found.work(s.sizes), "work_published": found.work_published(s.sizes)}
        for s in found.shapes
    ]  # fmt: skip
    data = {
        "operator": found.spec,
        "reference": found.reference_text(),
        "provenance": found.provenance,
        "shapes": records,
    }
    emit(data, json, head(found), "", found.reference_text().rstrip(), "", shapes_table(found))


def head(operator: Operator) -> str:
    """What an operator means and what a candidate may do."""
    spec, source = operator.spec, operator.provenance
    mutates = ", ".join(spec.legality.mutates) or "no input"
    prepare = ", ".join(spec.legality.prepare) or "nothing"
    lines = [
        f"{spec.name}: {spec.title}",
        f"  {spec.formula}",
        *([f"  {spec.notes}"] if spec.notes else []),
        f"  outputs {', '.join(spec.outputs)}; dtype {spec.dtype}; {spec.phase}",
        f"  forward may change {mutates}; __init__ may prepare {prepare}",
        f"  from {source.framework} {source.symbol}, weight {source.weight:.4f}",
        *sizes_lines(operator),
    ]
    return "\n".join(lines)


def sizes_lines(operator: Operator) -> list[str]:
    """What the sizes of the table are called, and those that all shapes share."""
    from roofmark.report.words import dims

    varying, fixed = names_of_sizes(operator)
    same = ", ".join(f"{key} {dims({key: value})}" for key, value in fixed.items())
    return [f"  sizes: {' x '.join(varying)}" + (f"; in all shapes {same}" if same else "")]


def names_of_sizes(operator: Operator) -> tuple[tuple[str, ...], dict[str, Any]]:
    """The names of the sizes that vary, and those that all shapes share with their values."""
    from roofmark.report.words import fixed_dims

    fixed = fixed_dims(shape.dims for shape in operator.shapes)
    known = dict.fromkeys(key for shape in operator.shapes for key in shape.dims)
    return tuple(key for key in known if key not in fixed), fixed


def shapes_table(operator: Operator) -> Any:
    """A row a shape: sizes, work, and the smaller sizes that stand in on a CPU."""
    from roofmark.report.words import dims, si

    varying, _ = names_of_sizes(operator)
    width = 0 if console().width >= WIDE else MAX_SIZES
    table = new_table("shape", fold=("sizes",))
    for column in ("work", "reads", "writes", "FLOP/byte"):
        table.add_column(column, justify="right", no_wrap=True)
    table.add_column("on a CPU as", overflow="fold")
    for shape in operator.shapes:
        work = operator.work(shape.sizes)
        sizes = {key: shape.dims.get(key, "-") for key in varying}
        stand_in = dims({**sizes, **shape.stand_in}, width=width) if shape.stand_in else ""
        table.add_row(
            shape.shape_id, dims(sizes, width=width), si(sum(work.flops.values()), "FLOP"),
            si(work.bytes_read, "B"), si(work.bytes_written, "B"), f"{work.intensity:,.2f}", stand_in,
        )  # fmt: skip
    return table
