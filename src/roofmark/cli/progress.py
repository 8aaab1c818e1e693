"""What a person sees while a verb works: a bar on a terminal, a line a step elsewhere; always on stderr."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from roofmark.evaluate import Progress

Watch = Callable[["Progress"], None]


@contextmanager
def watcher(first: str) -> Iterator[Watch]:
    """A watcher of a run's steps; `first` stands in the bar until there is one."""
    from rich.console import Console

    console = Console(stderr=True, highlight=False)
    if not console.is_terminal or console.is_dumb_terminal:
        yield print_line
        return
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (TextColumn("{task.description:<44}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=console, transient=True) as bar:
        yield move(bar, bar.add_task(first, total=None))


def print_line(step: Progress) -> None:
    """Prints a step as one line."""
    count = f" ({step.done + 1} of {step.total})" if step.done < step.total else ""
    print(f"roofmark: {step.what}{count}", file=sys.stderr, flush=True)


def move(bar: Any, task: Any) -> Watch:
    """A watcher that moves the bar and prints notes above it."""

    def watch(step: Progress) -> None:
        if step.note:
            bar.console.print(f"roofmark: {step.what}", markup=False, soft_wrap=True)
        elif step.total:
            bar.update(task, description=step.what, completed=step.done, total=step.total)
        else:
            bar.update(task, description=step.what)

    return watch
