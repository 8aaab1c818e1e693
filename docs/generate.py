"""Writes what the docs say of the code from the code: `python docs/generate.py [--check]`."""

from __future__ import annotations

import os
import re
import sys
from pathlib import Path

from typer.main import get_command

from roofmark import hardware, operators
from roofmark.cli import app

HERE = Path(__file__).parent
os.environ["COLUMNS"] = "100"  # the width that help texts are wrapped to


def commands() -> str:
    """The help of every command, as Markdown."""
    parts = ["# The command line", "", "Generated from the code by `make docs`.", ""]
    for path, command in sorted(walk(get_command(app), ("roofmark",))):
        context = command.make_context(path[-1], [], resilient_parsing=True)
        context.info_name = " ".join(path)
        text = re.sub(r"[ \t]+$", "", context.get_help(), flags=re.M).strip()
        parts += [f"## `{' '.join(path)}`", "", "```text", text, "```", ""]
    return "\n".join(parts)


def walk(command: object, path: tuple[str, ...]) -> list[tuple[tuple[str, ...], object]]:
    """Every command below `command` with the words that call it."""
    found = [(path, command)]
    for name, sub in getattr(command, "commands", {}).items():
        found += walk(sub, (*path, name))
    return found


def operator_table() -> str:
    """A row for each operator."""
    rows = ["| operator | dtype | phase | shapes | weight | formula |", "|---|---|---|---:|---:|---|"]
    for name in operators.names():
        found = operators.load(name)
        spec = found.spec
        formula = spec.formula.replace("|", "\\|")
        rows.append(
            f"| `{name}` | {spec.dtype} | {spec.phase} | {len(found.shapes)} "
            f"| {found.provenance.weight:.4f} | `{formula}` |"
        )
    return "\n".join(rows)


def hardware_table() -> str:
    """A row for each accelerator of the catalogue: dense peaks in TFLOP/s, bandwidth in TB/s."""
    dtypes = ("fp64", "fp32", "tf32", "bf16", "fp16", "fp8", "int8")
    rows = [f"| name | {' | '.join(dtypes)} | TB/s |", "|---|" + "---:|" * (len(dtypes) + 1)]
    for name in hardware.names():
        roofline = hardware.roofline(hardware.load(name))
        cells = [f"{roofline.peak_flops[d] / 1e12:g}" if d in roofline.peak_flops else "" for d in dtypes]
        rows.append(f"| `{name}` | {' | '.join(cells)} | {roofline.bandwidth_bytes_per_s / 1e12:g} |")
    return "\n".join(rows)


def filled(text: str, name: str, body: str) -> str:
    """`text` with the part between the two marks of `name` replaced by `body`."""
    pattern = rf"(<!-- {name} -->\n).*?(<!-- /{name} -->)"
    if not re.search(pattern, text, flags=re.S):
        sys.exit(f"no marks <!-- {name} --> … <!-- /{name} -->")
    return re.sub(pattern, lambda m: f"{m[1]}\n{body}\n\n{m[2]}", text, flags=re.S)


def main() -> None:
    """Writes the files, or with --check fails where one is stale."""
    wanted = {HERE / "cli.md": commands()}
    for file, name, body in (
        ("operators.md", "operators", operator_table()),
        ("hardware.md", "hardware", hardware_table()),
    ):
        path = HERE / file
        wanted[path] = filled(path.read_text(encoding="utf-8"), name, body)
    stale = [p for p, text in wanted.items() if not p.is_file() or p.read_text(encoding="utf-8") != text]
    if "--check" in sys.argv[1:]:
        if stale:
            sys.exit("stale: " + ", ".join(p.name for p in stale) + "; run `make docs`")
        return
    for path in stale:
        path.write_text(wanted[path], encoding="utf-8")


if __name__ == "__main__":
    main()
