"""The kernel languages. Each is a `Backend` record under the entry-point group `roofmark.backends`.

A backend has two sides. This record is the referee's. Its `probe` is a file of stdlib and torch alone that
the runner loads before the candidate, inside the sandbox; see `docs/backends.md` for its functions.
"""

from __future__ import annotations

import ast
import importlib
import importlib.util
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cache
from importlib.metadata import entry_points
from pathlib import Path

from roofmark.errors import UserError

GROUP = "roofmark.backends"
DEFAULTS = {"cpu": "numba", "cuda": "triton"}


@dataclass(frozen=True)
class Backend:
    """One kernel language.

    modules: imported once, before any candidate; also what must be installed.
    devices: `cpu`, `cuda`: where its kernels run.
    environment: set for the runner; `{cache}` stands for the candidate's own cache folder.
    artefact_suffixes: the files that a real compilation leaves in the cache.
    probe: the file that the runner loads.
    """

    name: str
    modules: tuple[str, ...]
    devices: tuple[str, ...]
    artefact_suffixes: tuple[str, ...]
    probe: Path
    install: str
    environment: Mapping[str, str] = field(default_factory=dict)

    def missing(self) -> tuple[str, ...]:
        """The modules that are not installed here."""
        return tuple(m for m in self.modules if importlib.util.find_spec(m) is None)


@cache
def names() -> tuple[str, ...]:
    """The names of the installed backends, sorted."""
    return tuple(sorted({entry.name for entry in entry_points(group=GROUP)} | {"numba", "triton"}))


@cache
def load(name: str) -> Backend:
    """The backend `name`; `UserError` where there is none."""
    if name not in names():
        raise UserError(f"no backend {name!r}", hint=f"known: {', '.join(names())}")
    found = [entry for entry in entry_points(group=GROUP) if entry.name == name]
    try:
        # a source tree that was never installed has no entry points
        place = found[0].load() if found else importlib.import_module(f"roofmark.backends.{name}").BACKEND
    except (ImportError, AttributeError) as error:
        raise UserError(f"backend {name} can't be loaded: {error}", hint="reinstall its package") from error
    if not isinstance(place, Backend):
        raise UserError(f"backend {name} is no Backend record", hint="its entry point must name one")
    return place


def detect(source: str, device: str, name: str = "the candidate") -> Backend:
    """The backend whose modules the candidate's `source` imports, and that runs on `device`.

    A file that imports no kernel language is judged as the device's default: numba on a CPU, Triton on CUDA.
    `UserError` where none of the languages that it imports runs on `device`; it calls the file `name`.
    """
    imported = _imported(source)
    written_in = [backend for backend in _loadable() if imported & {m.split(".")[0] for m in backend.modules}]
    for backend in written_in:
        if device in backend.devices:
            return backend
    for backend in written_in:
        on = " or ".join(backend.devices)
        raise UserError(
            f"{name} is written in {backend.name}, which runs on {on} and not on {device}",
            hint=f"use --device {on}, or say with --backend what it is written in",
        )
    if device not in DEFAULTS:
        raise UserError(f"no backend is the default on {device}", hint="name one with --backend")
    return load(DEFAULTS[device])


def _loadable() -> list[Backend]:
    """The installed backends; a broken plug-in must not stand in the way of the others."""
    found = []
    for name in names():
        with suppress(UserError):
            found.append(load(name))
    return found


def _imported(source: str) -> set[str]:
    """The top-level modules that the source imports anywhere; none where it is no Python."""
    try:
        tree = ast.parse(source)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return set()
    found: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found |= {alias.name.split(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            found.add(node.module.split(".")[0])
    return found
