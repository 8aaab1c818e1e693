"""`roofmark operators lint`: is an operator's judge able to tell right from wrong, on every shape?"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from roofmark.cli.output import JsonOption, ReleaseOption, check_json_target, emit, new_table
from roofmark.cli.progress import watcher

if TYPE_CHECKING:
    from collections.abc import Sequence

    from roofmark.evaluate.lint import OperatorProof, ShapeProof
    from roofmark.operators import Operator
    from roofmark.records import Shape

LEGEND = """
killed, survived: wrong answers that failed, that passed; same: equal to the right one there, bit by bit
right: the reference and others that are right and passed; nearest: the largest error among them, 1 being allowed
"""


def command(
    names: Annotated[list[str] | None, typer.Argument(metavar="NAME...", help="Operators.", show_default=False)] = None,
    every: Annotated[bool, typer.Option("--all", help="Every operator.")] = False,
    shapes: Annotated[str | None, typer.Option(metavar="IDS", help="Shapes, as in 0,3; all without it.")] = None,
    device: Annotated[str, typer.Option(metavar="DEVICE", help="auto, cpu or cuda.")] = "auto",
    jobs: Annotated[int, typer.Option(metavar="N", min=1, help="Shapes to prove at once.")] = 1,
    seed: Annotated[int, typer.Option(metavar="N", help="Other inputs for another number.")] = 0,
    strict: Annotated[bool, typer.Option("--strict", help="A missing second.py is a failure.")] = False,
    release: ReleaseOption = None,
    json: JsonOption = None,
) -> None:
    """Prove that right answers pass and wrong ones fail, with the evaluator's own check.

    Exit code 0: all shapes are proven; 1: some are not; 2: bad input, or a failure of ours.
    """
    check_json_target(json)
    with watcher("loading torch") as watch:
        chosen, where = choose(names or [], every, shapes, device, release)
        from roofmark.evaluate.lint import lint

        proofs = lint(chosen, device=where, watch=watch, jobs=jobs, seed=seed, strict=strict)
    tables: list[Any] = [operators_table(proofs)]
    if len(proofs) == 1:
        tables += ["", shapes_table(proofs[0].shapes)]
    faults = [fault.line for proof in proofs for fault in proof.faults]
    emit(list(proofs), json, *tables, LEGEND, *faults)
    raise typer.Exit(int(bool(faults)))


def choose(
    names: list[str], every: bool, shapes: str | None, device: str, release: str | None
) -> tuple[list[tuple[Operator, Sequence[Shape]]], str]:
    """The operators with their shapes, and the device."""
    from roofmark.errors import UserError
    from roofmark.evaluate import request
    from roofmark.releases import sets

    if bool(names) == every:
        raise UserError("name operators, or give --all", hint="`roofmark operators list` shows what there is")
    root = sets.resolve(release)[1]
    chosen = sets.operator_names(root) if every else dict.fromkeys(names)
    found = [sets.operator(name, root) for name in chosen]
    return [(one, request.choose_shapes(one, shapes)) for one in found], request.choose_device(device)


def operators_table(proofs: Sequence[OperatorProof]) -> Any:
    """A row an operator: shapes proven, mistakes that failed, right answers that passed, how sharp, how long."""
    table = new_table(
        "operator",
        right=("proven", "killed", "survived", "same", "right", "nearest", "second", "faults", "s"),
        fold=("least kill",),
    )
    for proof in proofs:
        shapes = proof.shapes
        survived = sum("is wrong and passes" in fault.message for fault in proof.faults)
        sharpest = min((one.sharpest[::-1] for one in shapes if one.sharpest), default=None)
        table.add_row(
            proof.operator, f"{proof.proven}/{len(shapes)}", str(sum(len(one.killed) for one in shapes)),
            str(survived), str(sum(len(one.same) for one in shapes)),
            str(sum(len(one.held) + len(one.passed) for one in shapes)),
            f"{max(one.worst_ratio for one in shapes):.2f}", "yes" if proof.second else "missing",
            str(len(proof.faults)), f"{sum(one.wall_s for one in shapes):.0f}",
            "" if sharpest is None else f"{sharpest[0]:.2f}x {sharpest[1]}",
        )  # fmt: skip
    return table


def shapes_table(shapes: Sequence[ShapeProof]) -> Any:
    """A row a shape: what was run there, what it took."""
    from roofmark.report.words import si

    columns = ("rows", "killed", "right", "nearest", "draw", "reference", "judge", "memory", "s")
    table = new_table("shape", right=columns, fold=("tolerances met by", "at some seeds alone"))
    for one in shapes:
        sharp = "; ".join(f"{key}: {title}" if len(one.sharp) > 1 else str(title) for key, title in one.sharp.items())
        table.add_row(
            one.shape_id + ("*" if one.stand_in else ""), f"{one.rows}/{one.rows_of_shape}", str(len(one.killed)),
            str(len(one.held) + len(one.passed)), f"{one.worst_ratio:.2f}", f"{one.draw_s:.2f}",
            f"{one.reference_s:.2f}", f"{one.judge_s:.2f}", si(one.judge_bytes, "B"), f"{one.wall_s:.1f}", sharp,
            "; ".join(one.late),
        )  # fmt: skip
    return table
