"""Gate 1: does the forward reach a kernel of the language that comes out as a real object?

The compile step runs in a sandbox of its own, on throwaway inputs of the right sizes, and ends before the
runner starts. What it leaves in the candidate's cache is all that the runner gets of it.
"""

from __future__ import annotations

import hashlib
import os
import re
import stat
from dataclasses import dataclass
from pathlib import Path

from roofmark.backends import Backend
from roofmark.evaluate import objects
from roofmark.evaluate.judge import MAIN, Judge, Outcome, Task, setup
from roofmark.evaluate.session import Session
from roofmark.records import Artefact, Compiled, Status
from roofmark.sandbox.child import CandidateEnded
from roofmark.sandbox.process import Sandbox
from roofmark.sandbox.system import plain

MAX_ARTEFACT_BYTES = 64 << 20
MAX_OBJECTS = 1024
MAX_OBJECT_NAME = 160


@dataclass(frozen=True)
class Compilation:
    """What gate 1 found on one shape: a way of compiling, its objects, or how it failed."""

    compiled: Compiled
    artefacts: tuple[Artefact, ...] = ()
    status: Status = Status.OK
    message: str = ""
    wall_s: float = 0.0


def compile_shape(sandbox: Sandbox, task: Task) -> Compilation:
    """What the forward compiles on one shape."""
    loaded = False
    try:
        with Session(sandbox.fork(setup(task), task.source), task.device, task.operator) as session:
            one = Judge(task, session, Outcome(), call_s=task.config.first_call_s)
            one.measure_null()  # as a runner does: the phases must look the same from inside
            one.load()
            loaded = True
            inputs = one.draw(MAIN, task.sizes)
            session.call(one.cases[MAIN], inputs, timeout_s=task.config.first_call_s)
            answer = session.child.request({"op": "dump"}, timeout_s=task.config.first_call_s)
    except CandidateEnded as end:
        status = end.status
        if not loaded and status is Status.CRASH:
            status = Status.COMPILE_ERROR  # a file that does not load has no kernel
        return Compilation(Compiled.FAILED, status=status, message=end.message)
    sandbox.keep_cache()
    kernels = answer.get("kernels")
    names = [plain(k, 200) for k in kernels[:256]] if isinstance(kernels, list) else []
    if not names:
        return Compilation(Compiled.FALLBACK)
    artefacts, proven = collect(sandbox.cache_dir, sandbox.backend, names)
    missing = [n for n in names if n not in proven]
    if missing:
        text = f"kernel {missing[0] or 'without a name'} was reached but left no compiled object"
        return Compilation(Compiled.FAILED, status=Status.COMPILE_ERROR, message=text)
    return Compilation(Compiled.ARTEFACT, artefacts)


def file_stem(kernel: str) -> str:
    """A kernel's name as the probes write it in file names."""
    return re.sub(r"[^A-Za-z0-9_.]+", "_", kernel)[:80]


def collect(cache: Path, backend: Backend, kernels: list[str]) -> tuple[tuple[Artefact, ...], frozenset[str]]:
    """The compiled objects in a candidate's cache that hold one of the named kernels, and which kernels they hold."""
    of_stem: dict[str, list[str]] = {}
    for kernel in filter(None, kernels):
        of_stem.setdefault(file_stem(kernel), []).append(kernel)
    found: list[Artefact] = []
    proven: set[str] = set()
    folder = cache / "artefacts"
    names = os.listdir(folder) if folder.is_dir() and not folder.is_symlink() else []
    mine = [n for n in sorted(names) if n.rpartition("-")[0] in of_stem and len(n) <= MAX_OBJECT_NAME]
    for name in mine[:MAX_OBJECTS]:
        path = folder / name
        data = read_plain(path) if path.suffix in backend.artefact_suffixes and name.isprintable() else None
        if data is None:
            continue
        kind = path.suffix[1:]
        held = objects.held(kind, data, of_stem[name.rpartition("-")[0]])
        if held:
            proven |= held
            digest = hashlib.sha256(data).hexdigest()
            found.append(Artefact(name=name, kind=kind, sha256=digest, size_bytes=len(data)))
    return tuple(found), frozenset(proven)


def read_plain(path: Path) -> bytes | None:
    """The bytes of a plain file that a candidate may have laid; None for anything else or anything huge."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    except OSError:
        return None
    with os.fdopen(fd, "rb") as file:
        info = os.fstat(fd)
        if not stat.S_ISREG(info.st_mode) or info.st_size > MAX_ARTEFACT_BYTES:
            return None
        return file.read(MAX_ARTEFACT_BYTES)
