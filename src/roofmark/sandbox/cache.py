"""The compile cache that a candidate left, laid on the referee's disk file by file from one bounded pack.

The referee never walks a folder that a candidate could write: it reads a pack, and every name and size in it
is checked here whatever the zygote checked.
"""

from __future__ import annotations

import os
import shutil
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from roofmark.sandbox.runner_files import CHUNK, HEADER, MAX_FILES, MAX_NAME, plain_name


@dataclass(frozen=True)
class Entry:
    """One file of a pack: its relative name, its time, and where its contents lie."""

    name: str
    mtime_ns: int
    offset: int
    size: int


def unpack(fd: int, used: object, folder: Path) -> int:
    """The number of files that now lie in `folder`, alone, out of the first `used` bytes of a pack.

    `ValueError` where it is no pack, before anything is written; `OSError` where the disk fails.
    """
    entries = read_entries(fd, used)
    clear(folder)
    for entry in entries:
        path = folder / entry.name
        path.parent.mkdir(parents=True, exist_ok=True)
        write(fd, entry, path)
    return len(entries)


def read_entries(fd: int, used: object) -> list[Entry]:
    """The files of a pack; `ValueError` for a name that is not plain, a clash, or a size beyond the pack."""
    if type(used) is not int or not 0 <= used <= os.fstat(fd).st_size:
        raise ValueError("the pack has no such size")
    entries: list[Entry] = []
    names: set[str] = set()
    folders: set[str] = set()
    offset = 0
    while offset < used:
        length, mtime_ns, size = HEADER.unpack(read(fd, HEADER.size, offset, used))
        if not 0 < length <= MAX_NAME or len(entries) == MAX_FILES:
            raise ValueError("the pack has too many files or too long a name")
        name = read(fd, length, offset + HEADER.size, used).decode()
        start = offset + HEADER.size + length
        if not plain_name(name) or mtime_ns < 0 or not 0 <= size <= used - start:
            raise ValueError("the pack has a file with no plain name, time or size")
        parts = name.split("/")
        above = {"/".join(parts[:n]) for n in range(1, len(parts))}
        if name in names or name in folders or above & names:
            raise ValueError("the pack has two files of one name")
        names.add(name)
        folders |= above
        entries.append(Entry(name, mtime_ns, start, size))
        offset = start + size
    return entries


def read(fd: int, count: int, offset: int, end: int) -> bytes:
    """`count` bytes at `offset`; `ValueError` where fewer are left before `end`."""
    data = os.pread(fd, count, offset) if offset + count <= end else b""
    if len(data) != count:
        raise ValueError("the pack ends too early")
    return data


def write(fd: int, entry: Entry, path: Path) -> None:
    """Makes one new file of a pack."""
    out = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o644)
    with os.fdopen(out, "wb") as file:
        for done in range(0, entry.size, CHUNK):
            file.write(os.pread(fd, min(CHUNK, entry.size - done), entry.offset + done))
    os.utime(path, ns=(entry.mtime_ns, entry.mtime_ns))


def clear(folder: Path) -> None:
    """Empties a folder without replacing it: it is mounted where later children look."""
    for entry in list(os.scandir(folder)):
        with suppress(OSError, RecursionError):
            shutil.rmtree(entry.path) if entry.is_dir(follow_symlinks=False) else os.unlink(entry.path)
