"""What the compile step produced, kept by hash under `artefacts/` of a run directory."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path

from roofmark.errors import StoreError
from roofmark.records import Artefact
from roofmark.store.files import clear_errors, open_folder, read_bounded, write_whole
from roofmark.store.run import Run

ARTEFACTS = "artefacts"
MAX_ARTEFACT_BYTES = 256 << 20


def save_artefact(run: Run, *, name: str, kind: str, data: bytes) -> Artefact:
    """The record of an artefact whose bytes then lie under `artefacts/<sha256>` (written once)."""
    where = run.path / ARTEFACTS
    if len(data) > MAX_ARTEFACT_BYTES:
        raise StoreError(f"the artefact {name} is larger than {MAX_ARTEFACT_BYTES >> 20} MiB")
    digest = hashlib.sha256(data).hexdigest()
    with clear_errors("use the directory", where):
        if not os.path.lexists(where):
            os.mkdir(ARTEFACTS, dir_fd=run.folder)
            os.fsync(run.folder)
        flags = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
        folder = os.open(ARTEFACTS, flags, dir_fd=run.folder)
    try:
        if read_bounded(folder, digest, MAX_ARTEFACT_BYTES, where) != data:
            write_whole(folder, digest, data, where)
    finally:
        os.close(folder)
    return Artefact(name=name, kind=kind, sha256=digest, size_bytes=len(data))


def read_artefact(path: Path, artefact: Artefact) -> bytes:
    """The bytes of an artefact of the run at `path`; `StoreError` where they are gone or changed."""
    where = path / ARTEFACTS
    if len(artefact.sha256) != 64 or not artefact.sha256.isalnum():
        raise StoreError(f"{artefact.sha256[:80]!r} ({artefact.name}) is not a SHA-256")
    folder = open_folder(where)
    try:
        data = read_bounded(folder, artefact.sha256, MAX_ARTEFACT_BYTES, where)
    finally:
        os.close(folder)
    if data is None:
        raise StoreError(f"{where / artefact.sha256} ({artefact.name}) does not exist")
    if hashlib.sha256(data).hexdigest() != artefact.sha256:
        raise StoreError(f"{where / artefact.sha256} ({artefact.name}) is not what was recorded")
    return data
