"""The table of operators: one row an operator, S and what stands beside it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from rich.console import Console, ConsoleOptions, RenderResult
from rich.table import Table
from rich.text import Text

from roofmark.records import OperatorScore
from roofmark.report import words

WIDE = 116
BAR = 10
COLUMNS = ("S", "S\nstrict", "eager\nS", "over\neager")
NARROW_COLUMNS = ("passed", "com-\npiled", "cor-\nrect", *COLUMNS, "adopted")
WIDE_COLUMNS = ("regime", "weight", "passed", "compiled", "correct", *COLUMNS, "adopted", "attain-\nable")


@dataclass(frozen=True)
class OperatorTable:
    """A table of operators; from 116 columns on with S_attainable and a bar of S."""

    operators: Sequence[OperatorScore]

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        """The table, laid out for the width at hand."""
        wide = options.max_width >= WIDE
        table = Table(box=None, header_style="bold", padding=(0, 1, 0, 0), collapse_padding=True, pad_edge=False)
        table.add_column("operator", overflow="fold")
        for name in WIDE_COLUMNS if wide else NARROW_COLUMNS:
            table.add_column(name, justify="left" if name == "regime" else "right", no_wrap=True)
        if wide:
            table.add_column("of the\nroofline", no_wrap=True)
        for operator in self.operators:
            table.add_row(*_row(operator, wide, options.ascii_only))
        yield table


def _row(operator: OperatorScore, wide: bool, ascii_only: bool) -> list[Text | str]:
    """The cells of an operator."""
    name = Text(words.safe(operator.operator, ascii_only=ascii_only))
    weight = f"{operator.weight:.4f}"
    figures: list[Text | str] = [
        Text(f"{operator.passed}/{operator.shapes}", style=_passed_style(operator)),
        words.percent(operator.compile_rate),
        words.percent(operator.correct_rate),
        Text(words.score(operator.s), style="bold"),
        words.score(operator.s_strict),
        _eager(operator, wide),
        words.ratio(operator.speedup_over_eager),
        words.percent(operator.adoption),
    ]
    if not wide:
        return [name.append(f"\n{operator.regime}, weight {weight}", style="dim"), *figures]
    attainable = words.attainable(operator.s_attainable)
    return [name, operator.regime, weight, *figures, attainable, _bar(operator.s, ascii_only)]


def _eager(operator: OperatorScore, wide: bool) -> Text:
    """The reference's S, and on how many shapes where those are fewer than S speaks of."""
    text = Text(words.score(operator.eager_s), justify="right")
    if operator.eager_s is not None and operator.eager_shapes < operator.s_shapes:
        text.append(f"{' ' if wide else chr(10)}{operator.eager_shapes}/{operator.s_shapes}", style="dim")
    return text


def _passed_style(operator: OperatorScore) -> str:
    """Green where all shapes passed, red where none did, yellow between."""
    if operator.passed == operator.shapes:
        return "green"
    return "yellow" if operator.passed else "red"


def _bar(s: float | None, ascii_only: bool) -> Text:
    """S as a bar of ten cells, the whole of it being the roofline."""
    full, empty = ("#", ".") if ascii_only else ("█", "░")
    if s is None:
        return Text("")
    cells = round(s * BAR)
    return Text(full * cells, style="green").append(empty * (BAR - cells), style="dim")
