"""Drives the installed command as a person would, and looks for what it leaves behind."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOFMARK = str(Path(sys.executable).with_name("roofmark"))
REPOSITORY = Path(__file__).parents[2]
NUMBA = str(REPOSITORY / "examples" / "numba" / "rms_norm.py")
# one of the smallest shapes of rms_norm: 3x256
SMALL = "41"
# a machine under load may not settle a median: nobody's fault, and no pass either
PASSES = {"ok", "unstable"}
Finished = dict[str, tuple[subprocess.CompletedProcess[str], bool]]
OURS = ("COLUMNS", "NO_COLOR", "FORCE_COLOR", "TERM", "PYTHONIOENCODING", "ROOFMARK_DEBUG")


@dataclass(frozen=True)
class Judged:
    """A finished run of the shipped numba kernel: where it lies, what was printed, how long it took."""

    cwd: Path
    done: subprocess.CompletedProcess[str]
    result: dict[str, Any]
    wall_s: float


def environment(**changes: str | None) -> dict[str, str]:
    """This environment without what changes the output; None takes a variable away."""
    env = {k: v for k, v in os.environ.items() if k not in OURS} | {"OPENBLAS_NUM_THREADS": "1"}
    for key, value in changes.items():
        env.pop(key, None)
        if value is not None:
            env[key] = value
    return env


def drive(*arguments: str | Path, cwd: Path, env: dict[str, str] | None = None, timeout: float = 300,
          **popen: Any) -> subprocess.CompletedProcess[str]:  # fmt: skip
    """The finished command."""
    streams: dict[str, Any] = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    return subprocess.run(
        [ROOFMARK, *map(str, arguments)], cwd=cwd, env=env or environment(), timeout=timeout, check=False,
        encoding="utf-8", errors="surrogateescape", **{**streams, **popen},
    )  # fmt: skip


def one_line(done: subprocess.CompletedProcess[str]) -> str:
    """The one line that a refusal printed, after checking that there is nothing else."""
    assert done.returncode == 2, (done.returncode, done.stdout, done.stderr)
    assert done.stdout in ("", None)
    assert done.stderr.startswith("roofmark: ")
    assert done.stderr.count("\n") == 1, done.stderr
    assert done.stderr.endswith("\n")
    line = done.stderr.removeprefix("roofmark: ").strip()
    assert line.isprintable()
    assert "Traceback" not in line
    assert "fault of Roofmark" not in line
    return line


def refused(*arguments: str | Path, cwd: Path, says: str, **options: Any) -> str:
    """The line of a command that must be refused, at once and without a trace in `cwd`."""
    before = tree(cwd)
    line = one_line(drive(*arguments, cwd=cwd, timeout=60, **options))
    assert re.search(says, line), line
    assert tree(cwd) == before
    return line


def tree(folder: Path) -> dict[str, tuple[int, int]]:
    """Every path below the folder with its size and the time of its last change."""
    found = {}
    for path in folder.rglob("*") if str(folder).startswith(("/tmp", "/var", str(REPOSITORY))) else ():
        info = path.lstat()
        found[str(path.relative_to(folder))] = (info.st_size, info.st_mtime_ns)
    return found


def drive_all(cases: Mapping[str, Sequence[str | Path]], folder_of: Callable[[str], Path], **options: Any) -> Finished:
    """Every command, several at a time, each in a folder of its own: what it printed, and whether it left a trace."""

    def one(case: str) -> tuple[subprocess.CompletedProcess[str], bool]:
        cwd = folder_of(case)
        before = tree(cwd)
        done = drive(*cases[case], cwd=cwd, timeout=120, **options)
        return done, tree(cwd) != before

    with ThreadPoolExecutor(os.cpu_count()) as pool:
        return dict(zip(cases, pool.map(one, cases), strict=True))


def refused_in(finished: Finished, case: str, says: str) -> None:
    """Checks one of many commands that must be refused in one line and without a trace."""
    done, trace = finished[case]
    line = one_line(done)
    assert re.search(says, line), line
    assert not trace


def data(done: subprocess.CompletedProcess[str]) -> Any:
    """The JSON on stdout, which must hold nothing else."""
    return json.loads(done.stdout)


def statuses(result: dict[str, Any]) -> dict[tuple[str, str], str]:
    """The status of each verdict, a median that load kept from settling counted as settled."""
    return {(v["subject"], v["shape_id"]): "ok" if v["status"] in PASSES else v["status"] for v in result["verdicts"]}


class Started:
    """A command under way, in a temporary folder of its own so that what it leaves can be told."""

    def __init__(self, *arguments: str | Path, cwd: Path, temporary: Path) -> None:
        self.temporary = temporary
        self.process = subprocess.Popen(
            [ROOFMARK, *map(str, arguments)], cwd=cwd, env=environment(TMPDIR=str(temporary)),
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
            preexec_fn=hear_signals,  # noqa: PLW1509
        )  # fmt: skip
        self.family: set[tuple[int, str]] = set()

    def wait_for(self, words: str) -> None:
        """Reads stderr until a line holds `words`."""
        assert self.process.stderr is not None
        for line in self.process.stderr:
            if words in line:
                return
        raise AssertionError(f"ended without {words!r}: {self.process.wait()}")

    def end(self, number: int) -> tuple[int, str, str]:
        """Sends the signal; exit code, stdout and the rest of stderr."""
        self.family = set(family(self.process.pid))
        self.process.send_signal(number)
        out, err = self.process.communicate(timeout=30)
        return self.process.returncode, out, err

    def children(self) -> list[str]:
        """The command lines of all its processes."""
        return [read(f"/proc/{pid}/cmdline") for pid, _ in list(family(self.process.pid))[1:]]

    def orphans(self, within_s: float = 5.0) -> list[str]:
        """What still runs of it after so long."""
        deadline = time.monotonic() + within_s
        while (left := self.left()) and time.monotonic() < deadline:
            time.sleep(0.05)
        return left

    def left(self) -> list[str]:
        """The command lines of those of its processes that live: known children, and whoever holds its sandbox."""
        alive = {(pid, born(pid)) for pid in pids()} & self.family
        alive |= {(pid, "") for pid in pids() if holds(pid, str(self.temporary))}
        return [f"{pid} {read(f'/proc/{pid}/cmdline')[:200]}" for pid, _ in alive if born(pid)]


def hear_signals() -> None:
    """A test runner in the background has SIGINT ignored; a person's terminal has not."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


def pids() -> list[int]:
    """Every process."""
    return [int(name) for name in os.listdir("/proc") if name.isdigit()]


def family(pid: int) -> Iterator[tuple[int, str]]:
    """A process and all below it, each with its time of birth."""
    yield pid, born(pid)
    with suppress(OSError):
        for task in os.listdir(f"/proc/{pid}/task"):
            for child in read(f"/proc/{pid}/task/{task}/children").split():
                yield from family(int(child))


def born(pid: int) -> str:
    """When a process started; empty where it is gone or a zombie."""
    fields = read(f"/proc/{pid}/stat").rpartition(")")[2].split()
    return fields[19] if len(fields) > 19 and fields[0] not in "ZX" else ""


def holds(pid: int, folder: str) -> bool:
    """Whether a process was called with a path of the folder, or has one mounted."""
    return pid != os.getpid() and any(folder in read(f"/proc/{pid}/{name}") for name in ("cmdline", "mountinfo"))


def read(path: str) -> str:
    """A file of /proc, empty where it is gone."""
    with suppress(OSError):
        return Path(path).read_text(errors="replace").replace("\0", " ")
    return ""
