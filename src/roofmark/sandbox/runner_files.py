"""What moves in and out of a candidate's cache. Loaded by `runner.py` in the sandbox, before any candidate.

Stdlib alone. The zygote packs what a dead child left; nothing of it is trusted to be well meant.
"""

from __future__ import annotations

import os
import shutil
import stat
import struct
from collections.abc import Iterator
from contextlib import suppress
from itertools import islice

# before each file of a pack: length of its name, its mtime in ns, its size; then the name and the contents
HEADER = struct.Struct("<Hqq")
MAX_FILES, MAX_DEPTH, MAX_NAME, MAX_PART = 4096, 8, 1024, 255
CHUNK = 1 << 20
LOOK = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


def plain_name(name: str) -> bool:
    """Whether `name` is a relative path of few, short, printable parts that stays below its folder."""
    parts = name.split("/")
    return (
        len(parts) <= MAX_DEPTH
        and all(p not in ("", ".", "..") and p.isprintable() and len(p.encode()) <= MAX_PART for p in parts)
        and len(name.encode()) <= MAX_NAME
    )


def pack(root: str, target: int, room: int) -> int:
    """The bytes used of `target`, into which the regular files under `root` were written as far as they fit."""
    used = 0
    try:
        folder = os.open(root, LOOK | os.O_DIRECTORY)
    except OSError:
        return 0
    try:
        for name, fd in regular_files(folder, "", [MAX_FILES]):
            with suppress(OSError):
                used += pack_file(name.encode(), fd, target, used, room)
    finally:
        os.close(folder)
    return used


def pack_file(name: bytes, fd: int, target: int, offset: int, room: int) -> int:
    """The bytes that one open file took at `offset`; 0 where it does not fit."""
    info = os.fstat(fd)
    start = offset + HEADER.size + len(name)
    if info.st_size > room - start:
        return 0
    size = 0
    while size < info.st_size and (data := os.read(fd, min(CHUNK, info.st_size - size))):
        write_all(target, data, start + size)
        size += len(data)
    write_all(target, HEADER.pack(len(name), max(info.st_mtime_ns, 0), size) + name, offset)
    return start + size - offset


def write_all(fd: int, data: bytes, offset: int) -> None:
    """Writes all of `data` at `offset`."""
    while data:
        done = os.pwrite(fd, data, offset)
        data, offset = data[done:], offset + done


def regular_files(folder: int, prefix: str, left: list[int]) -> Iterator[tuple[str, int]]:
    """Name and descriptor of each regular file below an open folder, until `left[0]` entries have been seen.

    Links are not followed; what can't be opened, or has a name that is not plain, is passed over.
    """
    with os.scandir(folder) as entries:
        names = sorted(entry.name for entry in islice(entries, max(left[0], 0)))
    for part in names:
        left[0] -= 1
        if left[0] < 0:
            return
        name = prefix + part
        if not plain_name(name):
            continue
        try:
            fd = os.open(part, LOOK, dir_fd=folder)
        except OSError:
            continue
        try:
            mode = os.fstat(fd).st_mode
            if stat.S_ISREG(mode):
                yield name, fd
            elif stat.S_ISDIR(mode):
                yield from regular_files(fd, f"{name}/", left)
        finally:
            os.close(fd)


def copy_tree(source: str, target: str, max_bytes: int, max_files: int = 20_000) -> None:
    """Copies the regular files under `source` with their times, up to `max_bytes` and `max_files` in all."""
    pending = [""]
    while pending:
        folder = pending.pop()
        with suppress(OSError):
            os.makedirs(os.path.join(target, folder), exist_ok=True)
            for entry in list(os.scandir(os.path.join(source, folder))):
                max_files -= 1
                if max_files < 0:
                    return
                name = os.path.join(folder, entry.name)
                if entry.is_dir(follow_symlinks=False):
                    pending.append(name)
                    continue
                info = entry.stat(follow_symlinks=False)
                if not stat.S_ISREG(info.st_mode) or info.st_size > max_bytes:
                    continue
                max_bytes -= info.st_size
                with suppress(OSError):
                    shutil.copy2(entry.path, os.path.join(target, name), follow_symlinks=False)
