"""Gate 1: does the forward reach a kernel of the language that comes out as a real object?

The compile step runs in a sandbox of its own, on throwaway inputs of the right sizes, and ends before the
runner starts. What it leaves in the candidate's cache is all that the runner gets of it.
"""

from __future__ import annotations

import hashlib
import os
import stat
from dataclasses import dataclass
from pathlib import Path

from roofmark.backends import Backend
from roofmark.evaluate.judge import MAIN, Judge, Outcome, Task, setup
from roofmark.evaluate.session import Session
from roofmark.records import Artefact, Compiled, Status
from roofmark.sandbox.process import CandidateEnded, Sandbox, plain

MAX_ARTEFACT_BYTES = 64 << 20
MAX_FILES = 4096


@dataclass(frozen=True)
class Compilation:
    """What gate 1 found on one shape: a way of compiling, its objects, or how it failed."""

    compiled: Compiled
    artefacts: tuple[Artefact, ...] = ()
    status: Status = Status.OK
    message: str = ""


def compile_shape(sandbox: Sandbox, task: Task) -> Compilation:
    """What the forward compiles on one shape."""
    loaded = False
    try:
        with Session(sandbox.fork(setup(task), task.source), task.device, task.operator) as session:
            one = Judge(task, session, Outcome(), call_s=task.config.first_call_s)
            one.load()
            loaded = True
            inputs = one.draw(MAIN, task.sizes)
            case = session.bind(MAIN, task.sizes, inputs, timeout_s=task.config.first_call_s)
            session.call(case, inputs, timeout_s=task.config.first_call_s)
            answer = session.child.request({"op": "dump"}, timeout_s=task.config.first_call_s)
    except CandidateEnded as end:
        status = end.status
        if not loaded and status is Status.CRASH:
            status = Status.COMPILE_ERROR  # a file that does not load has no kernel
        return Compilation(Compiled.FAILED, status=status, message=end.message)
    kernels = answer.get("kernels")
    names = [plain(k, 200) for k in kernels[:256]] if isinstance(kernels, list) else []
    if not names:
        return Compilation(Compiled.FALLBACK)
    artefacts = collect(sandbox.cache_dir, sandbox.backend, names)
    missing = [n for n in names if not any(a.name.startswith(file_stem(n)) for a in artefacts)]
    if missing:
        text = f"kernel {missing[0]} was reached but left no compiled object"
        return Compilation(Compiled.FAILED, status=Status.COMPILE_ERROR, message=text)
    return Compilation(Compiled.ARTEFACT, artefacts)


def file_stem(kernel: str) -> str:
    """A kernel's name as the probes write it in file names."""
    import re

    return re.sub(r"[^A-Za-z0-9_.]+", "_", kernel)[:80]


def collect(cache: Path, backend: Backend, kernels: list[str]) -> tuple[Artefact, ...]:
    """The compiled objects of the named kernels that lie in a candidate's cache; plain files of bounded size."""
    stems = tuple(file_stem(k) for k in kernels)
    found: list[Artefact] = []
    folder = cache / "artefacts"
    names = sorted(os.listdir(folder))[:MAX_FILES] if folder.is_dir() and not folder.is_symlink() else []
    for name in names:
        path = folder / name
        if path.suffix not in backend.artefact_suffixes or not name.startswith(stems) or not name.isprintable():
            continue
        data = read_plain(path)
        if data is not None:
            digest = hashlib.sha256(data).hexdigest()
            found.append(Artefact(name=name[:160], kind=path.suffix[1:], sha256=digest, size_bytes=len(data)))
    return tuple(found)


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
