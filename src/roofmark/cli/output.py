"""Records and tables out: JSON to a file or stdout, tables to stdout, progress to stderr."""

from __future__ import annotations

import json
import os
import stat
import sys
import tempfile
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from roofmark.cli.boundary import standard_output
from roofmark.errors import UserError

if TYPE_CHECKING:
    from rich.console import Console, RenderableType
    from rich.table import Table

    from roofmark.records import Record

NARROWEST = 72  # below, tables would hide figures; a terminal that is narrower wraps them

JsonOption = Annotated[
    str | None, typer.Option("--json", metavar="FILE|-", help="Write the records behind the table as JSON.")
]

ReleaseOption = Annotated[
    str | None,
    typer.Option("--release", metavar="DIR|NAME", help="A set of operators: a directory, or a release's name."),
]


def check_json_target(target: str | None) -> None:
    """Refuses a target that can't be written, before any work is done for it."""
    if target is None or target == "-":
        return
    path = Path(target)
    if not os.path.isdir(path.parent):
        raise UserError(f"--json {target!r}: there is no directory {str(path.parent)!r}")
    try:
        mode = path.stat().st_mode
        reason = "" if os.access(path, os.W_OK) else "Permission denied"
    except FileNotFoundError:
        mode, reason = stat.S_IFREG, ""
    except OSError as error:
        mode, reason = stat.S_IFREG, str(error.strerror)
    if not stat.S_ISREG(mode):
        kind = "is a directory" if stat.S_ISDIR(mode) else "is no plain file"
        raise UserError(f"--json {target!r} {kind}", hint="name a file, or - for standard output")
    if reason:
        raise UserError(f"--json {target!r} can't be written: {reason}")
    try:
        fd, name = tempfile.mkstemp(dir=path.resolve().parent, prefix=".roofmark-")
    except OSError as error:
        raise UserError(f"--json {target!r} can't be written: {error.strerror}") from error
    os.close(fd)
    os.unlink(name)


def emit(records: Record | Iterable[Record] | Any, target: str | None, *tables: RenderableType) -> None:
    """Writes the records where `--json` says, and the tables to stdout unless the records go there."""
    if target is None:
        show(*tables)
        return
    text = json.dumps(plain(records), indent=2, ensure_ascii=False, allow_nan=False) + "\n"
    # JSON is UTF-8 whatever the locale says; file names that are no text keep their escapes, as JSON has them
    data = text.encode("utf-8", "backslashreplace")
    if target == "-":
        with standard_output():
            sys.stdout.buffer.write(data)
        return
    try:
        write_file(Path(target), data)
    finally:
        show(*tables)


def plain(records: Any) -> Any:
    """Records as JSON data."""
    if hasattr(records, "model_dump"):
        return json.loads(records.model_dump_json())
    if isinstance(records, dict):
        return {k: plain(v) for k, v in records.items()}
    if isinstance(records, (list, tuple)):
        return [plain(r) for r in records]
    return records


def write_file(path: Path, data: bytes) -> None:
    """Writes a file whole or not at all; through a link, into what it points to."""
    place, name = path.resolve(), ""
    try:
        mode = stat.S_IMODE(place.stat().st_mode) if place.exists() else 0o666 & ~umask()
        fd, name = tempfile.mkstemp(dir=place.parent, prefix=f".{place.name[:99]}.")
        with os.fdopen(fd, "wb") as file:
            file.write(data)
        os.chmod(name, mode)
        os.replace(name, place)
    except OSError as error:
        with suppress(OSError):
            os.unlink(name)
        raise UserError(f"can't write {path}: {error.strerror}") from error


def umask() -> int:
    """The process's umask, which can't be read without being set."""
    mask = os.umask(0o077)
    os.umask(mask)
    return mask


def show(*tables: RenderableType) -> None:
    """Prints tables to stdout."""
    out = console()
    with standard_output():
        for table in tables:
            out.print(table, soft_wrap=isinstance(table, str))


def console() -> Console:
    """A console on stdout, 120 columns wide where stdout is no terminal, and never too narrow for figures."""
    from rich.console import Console

    class Pipe(Console):
        """A console that leaves a reader who has gone to the edge of the process."""

        def on_broken_pipe(self) -> None:
            """Raises what rich would turn into an exit code that says something else."""
            raise BrokenPipeError

    out = Pipe(highlight=False, markup=False)
    if not sys.stdout.isatty() and "COLUMNS" not in os.environ:
        out.width = 120
    out.width = max(out.width, NARROWEST)
    return out


def new_table(*left: str, right: Iterable[str] = (), fold: Iterable[str] = (), title: str = "") -> Table:
    """A table in the house's look with columns of words, then of numbers, then of words that may be folded."""
    from rich.table import Table

    table = Table(box=None, pad_edge=False, header_style="bold", title=title or None, title_justify="left",
                  title_style="bold")  # fmt: skip
    for name in left:
        table.add_column(name, no_wrap=True)
    for name in right:
        table.add_column(name, justify="right", no_wrap=True)
    for name in fold:
        table.add_column(name, overflow="fold")
    return table
