"""Temporary folders: their maker holds a lock on each, so that what a killed referee left can be told and removed."""

from __future__ import annotations

import fcntl
import os
import shutil
import tempfile
import time
from contextlib import suppress
from pathlib import Path

PREFIX = "roofmark-box-"
# a folder this young may not be held yet
YOUNG_S = 60.0


def make() -> Path:
    """A fresh folder, to be held at once."""
    return Path(tempfile.mkdtemp(prefix=PREFIX))


def hold(folder: Path) -> int:
    """A descriptor that marks the folder as in use until it is closed or this process ends."""
    fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    with suppress(OSError):  # a file system without locks: nobody will sweep there either
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    return fd


def sweep(root: Path | None = None, now: float | None = None) -> int:
    """How many folders of this user's that nobody holds any more were removed."""
    removed = 0
    for folder in (root or Path(tempfile.gettempdir())).glob(f"{PREFIX}*"):
        with suppress(OSError):
            removed += remove_if_left(folder, time.time() if now is None else now)
    return removed


def remove_if_left(folder: Path, now: float) -> bool:
    """Whether the folder was ours, old enough and held by nobody, and is gone now."""
    fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        info = os.fstat(fd)
        if info.st_uid != os.getuid() or now - info.st_mtime < YOUNG_S:
            return False
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        shutil.rmtree(folder, ignore_errors=True)
        return not folder.exists()
    finally:
        os.close(fd)
