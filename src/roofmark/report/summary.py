"""What a run amounts to, in a few lines: the score, the rates, the roofline, and what is missing."""

from __future__ import annotations

from dataclasses import dataclass

from rich.console import Console, ConsoleOptions, RenderResult
from rich.table import Table
from rich.text import Text

from roofmark.hardware.roofline import peak_flops, ridge
from roofmark.records import RunScore
from roofmark.report import words

MAX_REASONS = 12


def summary_lines(score: RunScore) -> list[tuple[str, str]]:
    """(label, text) of each line of a run's summary, without markup."""
    lines = [
        ("score", _score(score)),
        *_beside(score),
        ("rates", _rates(score)),
        ("held against", held_against(score)),
    ]
    state = "ranked" if score.ranked else "not ranked"
    lines.append(("isolation", f"{score.isolation.value}; {state}"))
    if score.median_wall_s is not None:
        lines.append(("took", f"{score.median_wall_s:.1f} s a shape in the median, all three gates"))
    lines += [("incomplete", reason) for reason in _first(score.incomplete)]
    return lines + [("note", note) for note in _first(score.notes)]


@dataclass(frozen=True)
class Summary:
    """The summary of a run as a renderable."""

    score: RunScore

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        """Two columns: labels and texts, folded to the width at hand."""
        grid = Table.grid(padding=(0, 2, 0, 0))
        grid.add_column(no_wrap=True)
        grid.add_column(overflow="fold")
        before = ""
        for label, text in summary_lines(self.score):
            style = {"score": "bold", "incomplete": "magenta", "note": "dim"}.get(label, "")
            shown = "" if label == before else label
            grid.add_row(Text(shown, style="dim"), Text(words.safe(text, ascii_only=options.ascii_only), style=style))
            before = label
        yield grid


def held_against(score: RunScore) -> str:
    """The roofline in words: bandwidth, the peak of each dtype in use, its ridge, and where it comes from."""
    roofline = score.roofline
    if roofline is None:
        return f"nothing: {score.roofline_source}"
    parts = [words.si(roofline.bandwidth_bytes_per_s, "B/s")]
    for dtype in score.dtypes:
        peak = words.si(peak_flops(roofline, dtype), "FLOP/s")
        parts.append(f"{dtype} {peak} (ridge {words.intensity(ridge(roofline, dtype))} FLOP/byte)")
    return f"{roofline.device}: {', '.join(parts)}; {score.roofline_source}"


def _score(score: RunScore) -> str:
    """The one figure, or why there is none."""
    if score.s_agg is not None:
        interval = words.scores(score.s_agg_interval)
        return f"S_agg {words.score(score.s_agg)} {interval}, S_strict {words.score(score.s_strict_agg)}"
    figures = f"S {words.score(score.s_covered)}, S_strict {words.score(score.s_strict_covered)}"
    over = f"over {words.percent(score.weight_covered)} of the release's weight"
    if score.s_covered is None:
        figures = "no S"
    elif score.eager_s_covered is not None:
        figures += f", eager S {words.score(score.eager_s_covered)}{_of_shapes(score)}"
    return f"{figures} {over}; no S_agg: the run is {'partial' if score.complete else 'incomplete'}"


def _beside(score: RunScore) -> list[tuple[str, str]]:
    """The same mean for the reference and for the deployed kernels, where each is known for all operators."""
    parts = []
    if score.eager_s_agg is not None:
        parts.append(f"eager S_agg {words.score(score.eager_s_agg)}{_of_shapes(score)}")
    if score.baseline_s_agg is not None:
        parts.append(f"deployed S_agg {words.score(score.baseline_s_agg)}{_of_all_shapes(score)}")
    return [("beside it", ", ".join(parts))] if parts else []


def _of_shapes(score: RunScore) -> str:
    """On how many of the shapes that S speaks of the reference has a time; empty where on all."""
    timed = sum(operator.eager_shapes for operator in score.operators)
    every = sum(operator.s_shapes for operator in score.operators)
    return f" (on {timed} of its {every} shapes)" if timed < every else ""


def _of_all_shapes(score: RunScore) -> str:
    """On how many of all shapes the deployed kernels have a time; empty where on all."""
    timed = sum(shape.baseline_s is not None for shape in score.shapes)
    return f" (on {timed} of {len(score.shapes)} shapes)" if timed < len(score.shapes) else ""


def _rates(score: RunScore) -> str:
    """Rates and ratios, each ratio with the number of operators where it is defined."""
    compiled = f"compiled {words.percent(score.compile_rate)}"
    if score.compile_rate_without_fallbacks != score.compile_rate:
        compiled += f" ({words.percent(score.compile_rate_without_fallbacks)} without fallbacks)"
    parts = [compiled, f"correct {words.percent(score.correct_rate)}"]
    for name, text, count in (
        ("adoption", words.percent(score.adoption), score.adoption_operators),
        ("over eager", words.ratio(score.speedup_over_eager), score.speedup_over_eager_operators),
        ("over the deployed", words.ratio(score.speedup_over_baseline), score.speedup_over_baseline_operators),
    ):
        of = f" ({count} of {len(score.operators)} operators)" if count < len(score.operators) else ""
        parts.append(f"{name} {text}{of}" if count else f"{name} n/a")
    return ", ".join(parts)


def _first(lines: tuple[str, ...]) -> list[str]:
    """The first dozen of the lines, and how many more there are."""
    rest = len(lines) - MAX_REASONS
    return [*lines[:MAX_REASONS], f"and {rest} more"] if rest > 0 else list(lines)
