"""Writes what the docs say of the code from the code: `python docs/generate.py [--check]`."""

from __future__ import annotations

import os
import re
import sys
from pathlib import Path
from typing import Any

from deployed_table import deployed_table
from operator_pages import pages
from typer.main import get_command

from roofmark import hardware, operators
from roofmark.cli import app
from roofmark.operators import zoo

HERE = Path(__file__).parent
LINT_PAGE = HERE / "operators_lint.md"
EXIT_CODES = (
    "| code | meaning |",
    "|---:|---|",
    "| 0 | done; for `evaluate`: every shape passed |",
    "| 1 | the candidate failed on some shape |",
    "| 2 | bad input, a broken machine or a failure of our own: one line on stderr says which |",
    "| 130, 143, 129 | stopped by Ctrl-C, SIGTERM or a lost terminal; the same command resumes the run |",
    "| 141 | whoever read the output has gone |",
)


def commands() -> str:
    """The help of every command, as Markdown."""
    parts = ["# The command line", "", "Generated from the code by `make docs`.", ""]
    for path, text in sorted(helps(get_command(app), "roofmark", None)):
        parts += [f"## `{path}`", "", "```text", re.sub(r"[ \t]+$", "", text, flags=re.M).strip(), "```", ""]
    parts += ["## Exit codes", "", *EXIT_CODES, ""]
    return "\n".join(parts)


def helps(command: Any, name: str, parent: Any) -> list[tuple[str, str]]:
    """The words that call each command at or below `command`, and its help."""
    settings = command.context_settings if parent is None else {}
    context = command.make_context(name, [], parent=parent, resilient_parsing=True, **settings)
    found = [(context.command_path, context.get_help())]
    for sub, below in getattr(command, "commands", {}).items():
        found += helps(below, sub, context)
    return found


def operator_table() -> str:
    """A row for each operator."""
    rows = ["| operator | dtype | phase | shapes | weight | formula |", "|---|---|---|---:|---:|---|"]
    for name in operators.names():
        found = operators.load(name)
        spec = found.spec
        formula = spec.formula.replace("|", "\\|")
        rows.append(
            f"| [`{name}`](operators/{name}.md) | {spec.dtype} | {spec.phase} | {len(found.shapes)} "
            f"| {found.provenance.weight:.4f} | `{formula}` |"
        )
    return "\n".join(rows)


def hardware_table() -> str:
    """A row for each accelerator of the catalogue: dense peaks in TFLOP/s, bandwidth in TB/s."""
    dtypes = ("fp64", "fp32", "tf32", "bf16", "fp16", "fp8", "int8")
    rows = [f"| name | {' | '.join(dtypes)} | TB/s |", "|---|" + "---:|" * (len(dtypes) + 1)]
    for name in hardware.names():
        roofline = hardware.load(name).roofline
        cells = [f"{roofline.peak_flops[d] / 1e12:g}" if d in roofline.peak_flops else "" for d in dtypes]
        rows.append(f"| `{name}` | {' | '.join(cells)} | {roofline.bandwidth_bytes_per_s / 1e12:g} |")
    return "\n".join(rows)


def lint_page() -> str:
    """What each operator is proven with: counts, then titles."""
    found = {name: zoo.load(operators.load(name)) for name in operators.names()}
    head = ("operator", "wrong", "on special rows", "on corner cases", "right", "second", "tolerances")
    rows = [f"| {' | '.join(head)} |", "|---|" + "---:|" * 4 + "---|---|"]
    parts: list[str] = []
    for name, one in found.items():
        counts = (len(kind) for kind in (one.wrong, one.special, one.wrong_on_corners, one.right))
        outputs = ", ".join(f"`{o}`" for o in operators.load(name).spec.outputs)
        tolerances = ", ".join(f"`{t}`" for t in one.tolerances) or f"bound of {outputs}"
        cells = (f"`{name}`", *map(str, counts), "yes" if one.second else "missing", tolerances)
        rows.append(f"| {' | '.join(cells)} |")
        corners = [f"{corner}: {title}" for corner, title in one.wrong_on_corners]
        excused = [f"{title} ({why})" for title, why in one.excused.items()]
        parts += ["", f"## `{name}`", ""]
        for label, titles in (
            ("Wrong", one.wrong), ("Wrong on special rows", one.special), ("Wrong on a corner case", corners),
            ("Right", one.right), ("Excused", excused),
        ):  # fmt: skip
            if titles:
                parts.append(f"- {label}: {' · '.join(titles)}")
    text = LINT_PAGE.read_text(encoding="utf-8")
    text = filled(text, "generic", " · ".join(zoo.SPOILT))
    return filled(filled(text, "counts", "\n".join(rows)), "titles", "\n".join(parts).strip())


def filled(text: str, name: str, body: str) -> str:
    """`text` with the part between the two marks of `name` replaced by `body`."""
    pattern = rf"(<!-- {name} -->\n).*?(<!-- /{name} -->)"
    if not re.search(pattern, text, flags=re.S):
        sys.exit(f"no marks <!-- {name} --> … <!-- /{name} -->")
    return re.sub(pattern, lambda m: f"{m[1]}\n{body}\n\n{m[2]}", text, flags=re.S)


def main() -> None:
    """Writes the files, or with --check fails where one is stale."""
    os.environ["COLUMNS"] = "80"  # help is wrapped to the terminal at hand
    wanted = {HERE / "cli.md": commands(), LINT_PAGE: lint_page()}
    for file, name, body in (
        ("operators.md", "operators", operator_table()),
        ("hardware.md", "hardware", hardware_table()),
        ("deployed.md", "deployed", deployed_table()),
    ):
        path = HERE / file
        wanted[path] = filled(path.read_text(encoding="utf-8"), name, body)
    wanted |= pages()
    strays = sorted(set((HERE / "operators").glob("*.md")) - wanted.keys())
    stale = [p for p, text in wanted.items() if not p.is_file() or p.read_text(encoding="utf-8") != text]
    if "--check" in sys.argv[1:]:
        if stale or strays:
            sys.exit("stale: " + ", ".join(p.name for p in (*stale, *strays)) + "; run `make docs`")
        return
    for path in strays:
        path.unlink()
    for path in stale:
        path.parent.mkdir(exist_ok=True)
        path.write_text(wanted[path], encoding="utf-8")


if __name__ == "__main__":
    main()
