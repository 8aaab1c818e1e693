"""The table of shapes: one row a shape, and beneath it why each failed shape failed."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from textwrap import wrap

from rich.console import Console, ConsoleOptions, RenderableType, RenderResult
from rich.table import Table
from rich.text import Text

from roofmark.records import OperatorScore, ShapeScore, Status
from roofmark.report import words

WIDE = 116
LONGEST_WORD = len("infrastructure")
SIZES = 12


@dataclass(frozen=True)
class ShapeTable:
    """A table of the shapes of one operator, one line a shape from 116 columns on, two below."""

    operator: OperatorScore
    shapes: Sequence[ShapeScore]

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        """The table and the list of failures, laid out for the width at hand."""
        fixed = words.fixed_dims(shape.dims for shape in self.shapes)
        draw = _wide if options.max_width >= WIDE else _narrow
        yield _title(self.operator, self.shapes, fixed, options.ascii_only)
        yield draw(self.shapes, fixed, options.ascii_only)
        yield from _reasons(self.shapes, options.ascii_only)


def _title(operator: OperatorScore, shapes: Sequence[ShapeScore], fixed: dict[str, object], ascii_only: bool) -> Text:
    """The operator's name, what its sizes are called, and those that all its shapes share."""
    title = Text(operator.operator, style="bold")
    known = next((shape.dims for shape in shapes if shape.dims), {})
    varying = [key for key in known if key not in fixed]
    if varying:
        title.append(f"  sizes: {' x '.join(varying)}", style="dim")
    if fixed:
        same = ", ".join(f"{key} {words.dims({key: value})}" for key, value in fixed.items())
        title.append(f"; all: {same}", style="dim")
    return Text(words.safe(title.plain, ascii_only=ascii_only)) if ascii_only else title


def _table() -> Table:
    """An empty table in the house's look."""
    return Table(box=None, header_style="bold", padding=(0, 1, 0, 0), collapse_padding=True, pad_edge=False)


def _wide(shapes: Iterable[ShapeScore], fixed: dict[str, object], ascii_only: bool) -> Table:
    """One line a shape."""
    micro = "us" if ascii_only else "µs"
    table = _table()
    table.add_column("shape", no_wrap=True)
    table.add_column("sizes", overflow="fold")
    table.add_column("status", no_wrap=True)
    for name in (f"T {micro}", "", f"T_SOL {micro}", "S", "", "eager S", "adopted"):
        table.add_column(name, justify="left" if not name else "right", no_wrap=True)
    table.add_column("note", overflow="fold")
    for shape in shapes:
        table.add_row(
            words.safe(shape.shape_id, ascii_only=ascii_only),
            words.dims(shape.dims, fixed),
            Text(str(shape.status), style=words.status_style(shape.status)),
            words.us(shape.time_us),
            Text(words.times(shape.interval_us), style="dim"),
            words.us(shape.t_sol_us),
            Text(words.score(shape.s), style="bold"),
            Text(words.scores(shape.s_interval), style="dim"),
            _eager(shape.eager_s),
            words.percent(shape.adoption),
            Text(", ".join(shape.notes), style="yellow"),
        )
    return table


def _narrow(shapes: Iterable[ShapeScore], fixed: dict[str, object], ascii_only: bool) -> Table:
    """Two lines a shape: the intervals and notes under the figures and the status that they belong to."""
    micro = "us" if ascii_only else "µs"
    table = _table()
    table.add_column("#", no_wrap=True)
    table.add_column("sizes", overflow="fold")
    table.add_column("status", no_wrap=True)
    for name in (f"T {micro}", f"T_SOL\n{micro}", "S", "eager\nS", "adop-\nted"):
        table.add_column(name, justify="right", no_wrap=True)
    for shape in shapes:
        lines = wrap(str(shape.status).replace("_", " "), LONGEST_WORD)
        status = Text("\n".join(lines), style=words.status_style(shape.status))
        for note in shape.notes:
            status.append(f"\n{note}", style="yellow")
        table.add_row(
            words.safe(shape.shape_id, ascii_only=ascii_only),
            words.dims(shape.dims, fixed, SIZES),
            status,
            _two(words.us(shape.time_us), words.times(shape.interval_us)),
            words.us(shape.t_sol_us),
            _two(words.score(shape.s), words.scores(shape.s_interval), "bold"),
            _eager(shape.eager_s),
            words.percent(shape.adoption),
        )
    return table


def _eager(s: float | None) -> Text:
    """The reference's S, marked where it is above 1 and the bound therefore wrong."""
    return Text(words.score(s), style="bold magenta" if s is not None and s > 1 else "")


def _two(figure: str, interval: str, style: str = "") -> Text:
    """A figure with its interval beneath."""
    text = Text(figure, style=style, justify="right")
    if interval:
        text.append("\n" + interval.replace(", ", ","), style="not bold dim")
    return text


def _reasons(shapes: Iterable[ShapeScore], ascii_only: bool) -> Iterable[RenderableType]:
    """One entry for each shape that did not pass or has something to say: its status and its reason."""
    failed = [shape for shape in shapes if shape.status is not Status.OK or shape.message]
    if not failed:
        return
    grid = Table.grid(padding=(0, 1, 0, 0))
    grid.add_column(no_wrap=True)
    grid.add_column(overflow="fold")
    for shape in failed:
        reason = Text(str(shape.status), style=words.status_style(shape.status))
        where = f" ({shape.gate} gate)" if shape.gate and shape.status is not Status.OK else ""
        reason.append(where, style="dim")
        if shape.message:
            reason.append(f": {words.safe(shape.message, ascii_only=ascii_only)}", style="not bold default")
        grid.add_row(f"  {words.safe(shape.shape_id, ascii_only=ascii_only)}", reason)
    yield grid
