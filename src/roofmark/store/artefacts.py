"""What the compile step produced, kept by hash under `artefacts/` of a run directory."""

from __future__ import annotations

import hashlib
import os

from roofmark.errors import StoreError
from roofmark.records import Artefact
from roofmark.store.files import clear_errors, read_bounded, write_whole
from roofmark.store.run import ARTEFACTS, Run, open_artefacts

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
        folder = open_artefacts(run.folder)
    if folder is None:
        raise StoreError(f"can't use the directory {where}: it is none")
    try:
        if read_bounded(folder, digest, MAX_ARTEFACT_BYTES, where) != data:
            write_whole(folder, digest, data, where)
    finally:
        os.close(folder)
    return Artefact(name=name, kind=kind, sha256=digest, size_bytes=len(data))
