"""The kernel languages. Each is a `Backend` record under the entry-point group `roofmark.backends`.

A backend has two sides. This record is the referee's. Its `probe` is a file of stdlib and torch alone that
the runner loads before the candidate, inside the sandbox; see `docs/backends.md` for its four functions.
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


def detect(source: str, device: str) -> Backend:
    """The backend whose modules the candidate's `source` imports and that runs on `device`."""
    try:
        tree = ast.parse(source)
    except (SyntaxError, ValueError):
        tree = ast.Module(body=[], type_ignores=[])
    imported: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            imported |= {alias.name.split(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            imported.add(node.module.split(".")[0])
    fitting = []
    for name in names():
        with suppress(UserError):  # a broken plug-in must not stand in the way of the others
            backend = load(name)
            fitting += [backend] if device in backend.devices else []
    for backend in fitting:
        if imported & {m.split(".")[0] for m in backend.modules}:
            return backend
    if not fitting:
        raise UserError(f"no backend runs on {device}", hint="name one with --backend")
    return fitting[0]
