"""Figures and names in a few characters, safe for any terminal."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Any

from roofmark.records import Interval, Status

NONE = "-"
MAX_MESSAGE = 400

STYLES: dict[str, str] = {
    Status.OK: "bold green",
    Status.OVER_TIME_BUDGET: "bold yellow",
    Status.UNSTABLE: "bold yellow",
    Status.IMPOSSIBLE: "bold magenta",
    Status.INFRASTRUCTURE: "bold magenta",
    "missing": "bold magenta",
}
FAILED_STYLE = "bold red"


def status_style(status: str) -> str:
    """The style of a status; the word says the same without colour."""
    return STYLES.get(status, FAILED_STYLE)


def us(value: float | None) -> str:
    """A time in µs with three digits that count, two where it is far below 1, all above 1000."""
    if value is None or not math.isfinite(value):
        return NONE
    if value >= 1000:
        return f"{value:.0f}"
    if value >= 1:
        return f"{value:.{3 - len(str(int(value)))}f}" if value >= 10 else f"{value:.2f}"
    if value < 1e-6:
        return "<1e-6" if value > 0 else "0"
    return f"{value:.{max(3, 1 - math.floor(math.log10(value)))}f}"


def score(value: float | None) -> str:
    """S with three decimals; what would round to zero and is not shows as `<0.001`."""
    if value is None or not math.isfinite(value):
        return NONE
    return "<0.001" if 0 < value < 0.0005 else f"{value:.3f}"


def attainable(value: float | None) -> str:
    """S_attainable with three decimals; `>=1` from 1 on, where the floor lies above T."""
    return ">=1" if value is not None and value >= 1 else score(value)


def percent(value: float | None) -> str:
    """A share as a whole percentage, with a decimal where it would otherwise read 0 or 100 and is not."""
    if value is None:
        return NONE
    rounded = f"{100 * value:.0f}%"
    return f"{100 * value:.1f}%" if rounded in ("0%", "100%") and value not in (0, 1) else rounded


def ratio(value: float | None) -> str:
    """A speed-up with two decimals and an x, fewer where it is large."""
    if value is None:
        return NONE
    return f"{value:.2f}x" if value < 100 else f"{value:.0f}x"


def times(interval: Interval | None) -> str:
    """An interval of times in µs, empty where there is none."""
    return "" if interval is None else f"[{us(interval.low)}, {us(interval.high)}]"


def scores(interval: Interval | None) -> str:
    """An interval of S, empty where there is none or both its ends read `<0.001`."""
    return "" if interval is None or interval.high < 0.0005 else f"[{score(interval.low)}, {score(interval.high)}]"


def si(value: float, unit: str) -> str:
    """A quantity with a prefix and three digits that count: `4.8 TB/s`."""
    for factor, prefix in ((1e15, "P"), (1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k")):
        if value >= factor * 0.9995:  # rounds up to it
            return f"{value / factor:.3g} {prefix}{unit}"
    return f"{value:.3g} {unit}"


def intensity(value: float) -> str:
    """FLOP per byte with three digits that count and no exponent."""
    return f"{value:.0f}" if value >= 100 else f"{value:.3g}"


def safe(text: str, *, ascii_only: bool = False, limit: int = MAX_MESSAGE) -> str:
    """The text on one line without control characters, which a candidate's message may hold."""
    line = "".join(c if c.isprintable() else " " for c in text[: limit + 1])
    line = " ".join(line.split())
    if len(line) > limit:
        line = line[: limit - 3] + "..."
    if not ascii_only:
        return line
    return line.replace("µ", "u").encode("ascii", "replace").decode()


def fixed_dims(every: Iterable[Mapping[str, Any]]) -> dict[str, Any]:
    """The sizes that are equal in all of at least two shapes, to be told once."""
    shapes = [dims for dims in every if dims]
    if len(shapes) < 2:
        return {}
    first, *others = shapes
    fixed = {k: v for k, v in first.items() if all(k in o and o[k] == v for o in others)}
    return {} if len(fixed) == len(first) else fixed


def dims(sizes: Mapping[str, Any], without: Iterable[str] = (), width: int = 0) -> str:
    """Sizes joined as `4096x128`, in lines of at most `width` where one is given, broken before an x.

    A `shape` is its sizes; another list of more than three is `[8: 12..4096]`: how many, from where to where.
    Runs of equal sequences are `[130*256]`, of tokens and a longer cache `[8*1/4096]`.
    """
    hidden = set(without)
    parts = [_size(value, key == "shape") for key, value in sizes.items() if key not in hidden]
    text = "x".join(part for part in parts if part)
    lines = [""]
    for part in text.replace("x", "\0x").split("\0") if width else [text]:
        if width and lines[-1] and len(lines[-1]) + len(part) > width:
            lines.append("")
        lines[-1] += part
    return "\n".join(lines) if text else NONE


def _size(value: Any, plain: bool) -> str:
    """One size."""
    if isinstance(value, Mapping) and set(value) == {"run_length"}:
        runs = value["run_length"]
        told = "+".join(f"{count}*{'/'.join(map(str, lengths))}" for *lengths, count in runs[:3])
        return f"[{told}]" if len(runs) <= 3 else f"[{told}+{len(runs) - 3} more]"
    if not isinstance(value, list | tuple):
        return str(value)
    if plain:
        return "x".join(map(str, value))
    if len(value) <= 3:
        return str(value[0]) if len(value) == 1 else f"[{','.join(map(str, value))}]"
    try:
        return f"[{len(value)}: {min(value)}..{max(value)}]"
    except TypeError:
        return f"[{len(value)}]"
