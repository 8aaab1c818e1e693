"""Numbers to people: tables and a summary for a terminal of any width, with colour or without.

`run_report(score)` is all of it; `shape_table`, `operator_table` and `summary` are its parts. All are rich
renderables that lay themselves out when printed: `Console().print(run_report(score))`.
"""

from __future__ import annotations

from itertools import groupby

from rich.console import Group, RenderableType
from rich.text import Text

from roofmark.records import RunScore
from roofmark.report.operators import OperatorTable
from roofmark.report.shapes import ShapeTable
from roofmark.report.summary import Summary, held_against, summary_lines

__all__ = ["held_against", "operator_table", "run_report", "shape_table", "summary", "summary_lines"]


def shape_table(score: RunScore) -> RenderableType:
    """A table of the shapes of each operator, and beneath each why its failed shapes failed."""
    operators = {operator.operator: operator for operator in score.operators}
    parts: list[RenderableType] = []
    for name, shapes in groupby(score.shapes, key=lambda shape: shape.operator):
        parts += [*([Text()] if parts else []), ShapeTable(operators[name], tuple(shapes))]
    return Group(*parts)


def operator_table(score: RunScore) -> RenderableType:
    """A table of the operators of a run."""
    return OperatorTable(score.operators)


def summary(score: RunScore) -> RenderableType:
    """The score, the rates, the roofline it was held against, and what is missing or should be known."""
    return Summary(score)


def run_report(score: RunScore) -> RenderableType:
    """Shapes, operators and summary, one after the other."""
    return Group(shape_table(score), Text(), operator_table(score), Text(), summary(score))
