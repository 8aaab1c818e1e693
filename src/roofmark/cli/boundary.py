"""The edge of the process: its streams and signals, and every failure as one line and an exit code.

0 all passed, 1 a candidate failed, 2 bad input or a broken machine, 128 + n stopped by signal n.
"""

from __future__ import annotations

import os
import re
import signal
import sys
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from io import TextIOWrapper
from types import FrameType
from typing import Any, NoReturn

from roofmark.errors import RoofmarkError

BAD_INPUT = 2
MAX_LINE, MAX_WORD = 4000, 400
WORDS = {signal.SIGINT: "interrupted", signal.SIGTERM: "terminated", signal.SIGHUP: "hung up"}


class Stopped(BaseException):
    """A signal asks this process to end. `hint` says what becomes of the work at hand."""

    def __init__(self, number: int, hint: str = "") -> None:
        super().__init__(number)
        self.number = number
        self.hint = hint

    def __str__(self) -> str:
        word = WORDS.get(signal.Signals(self.number), "stopped")
        return f"{word}; {self.hint}" if self.hint else word


class LostOutput(BaseException):
    """Standard output takes no more."""

    def __init__(self, error: OSError) -> None:
        super().__init__(str(error))
        self.error = error


@contextmanager
def standard_output() -> Iterator[None]:
    """A context for writing to stdout; what fails there is told at the edge, and not by typer."""
    try:
        yield
        sys.stdout.flush()
    except OSError as error:
        raise LostOutput(error) from error


def run(verb: Callable[[], Any]) -> NoReturn:
    """Runs the verb and ends the process with its exit code, whatever happens in it."""
    open_streams()
    stop_on_signals()
    # a pool of ours that spins after its work takes a core from the candidate that is timed next
    os.environ.setdefault("GOMP_SPINCOUNT", "0")
    os.environ.setdefault("KMP_BLOCKTIME", "0")
    code = outcome(verb)
    try:
        sys.stdout.flush()
    except OSError as error:
        code = lost_output(error)
    sys.exit(code)


def outcome(verb: Callable[[], Any]) -> int:
    """The exit code of the verb; what it raised is told on stderr."""
    try:
        return int(verb() or 0)
    except RoofmarkError as error:
        return tell(str(error))
    except LostOutput as lost:
        return lost_output(lost.error)
    except Stopped as stop:
        tell(str(stop))
        return 128 + stop.number
    except Exception as error:  # noqa: BLE001  # the edge of the process
        return tell_other(error)


def tell_other(error: Exception) -> int:
    """Tells a usage error of the command line's, an unforeseen `OSError`, or a fault of our own."""
    message = getattr(error, "format_message", None)
    if message is not None:
        text = message()
        if text.startswith("Usage:"):  # a group without its command
            print(text, file=sys.stderr)
            return BAD_INPUT
        context = getattr(error, "ctx", None)
        path = context.command_path if context is not None else "roofmark"
        return tell(f"{text.rstrip('.')}; {path} -h shows what it takes")
    if os.environ.get("ROOFMARK_DEBUG"):
        traceback.print_exc()
    if isinstance(error, OSError) and error.strerror:
        return tell(f"{error.strerror}: {error.filename}" if error.filename else error.strerror)
    return tell(f"a fault of Roofmark's own: {type(error).__name__}: {error}; ROOFMARK_DEBUG=1 shows where")


def tell(text: str) -> int:
    """Prints one line on stderr, printable characters alone, and returns the exit code of bad input."""
    line = " ".join("".join(c if c.isprintable() else " " for c in text).split())
    line = re.sub(rf"\S{{{MAX_WORD},}}", lambda word: f"{word[0][:60]}...{word[0][-60:]}", line)[:MAX_LINE]
    with suppress(OSError):
        print(f"roofmark: {line}", file=sys.stderr, flush=True)
    return BAD_INPUT


def lost_output(error: OSError) -> int:
    """The exit code where stdout takes no more: as if SIGPIPE had ended us where its reader has gone."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    if isinstance(error, BrokenPipeError):
        return 128 + signal.SIGPIPE
    return tell(f"can't write to standard output: {error.strerror}")


def open_streams() -> None:
    """Opens closed standard streams on /dev/null, so that no file of ours ever becomes one of them."""
    for fd, name, mode in ((0, "stdin", "r"), (1, "stdout", "w"), (2, "stderr", "w")):
        try:
            os.fstat(fd)
        except OSError:
            os.dup2(os.open(os.devnull, os.O_RDWR), fd)
        if getattr(sys, name) is None:
            setattr(sys, name, open(fd, mode, encoding="utf-8", closefd=False))  # noqa: SIM115
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):
            stream.reconfigure(errors="replace")


def stop_on_signals() -> None:
    """Turns SIGINT, SIGTERM and SIGHUP into `Stopped`, except where our parent has them ignored."""
    for number in WORDS:
        if signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, stop)


def stop(number: int, _: FrameType | None) -> None:
    """Raises `Stopped`; a second signal ends the process at once."""
    signal.signal(number, signal.SIG_DFL)
    raise Stopped(number)
