"""Files of a run directory: bounded, no links followed, written so that a crash leaves no half."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from roofmark.errors import StoreError

TMP_PREFIX = ".tmp-"
NEVER_FOLLOW = os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK


@contextmanager
def clear_errors(what: str, path: Path) -> Iterator[None]:
    """A context that turns an `OSError` into a `StoreError` of one line: what failed, where and why."""
    try:
        yield
    except OSError as error:
        reason = error.strerror or str(error) or type(error).__name__
        raise StoreError(f"can't {what} {path}: {reason}") from error


def open_folder(path: Path) -> int:
    """A descriptor of the directory `path`; `StoreError` where there is none."""
    with clear_errors("open the directory", path):
        return os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)


def open_regular(folder: int, name: str, flags: int, where: Path) -> int | None:
    """A descriptor of the regular file `name` in `folder`, None where it does not exist.

    A link, FIFO, socket, device or directory in its place is a `StoreError`; opening never blocks.
    """
    try:
        fd = os.open(name, flags | NEVER_FOLLOW, 0o644, dir_fd=folder)
    except FileNotFoundError:
        return None
    except OSError as error:
        kind = _kind(folder, name)
        reason = f"is {kind}, not a file" if kind else f"can't be opened: {error.strerror}"
        raise StoreError(f"{where / name} {reason}") from error
    mode = os.fstat(fd).st_mode
    if not stat.S_ISREG(mode):
        os.close(fd)
        raise StoreError(f"{where / name} is {_kind_of(mode)}, not a file")
    return fd


def read_bounded(folder: int, name: str, limit: int, where: Path) -> bytes | None:
    """The bytes of a regular file of at most `limit` bytes, None where it does not exist."""
    fd = open_regular(folder, name, os.O_RDONLY, where)
    if fd is None:
        return None
    with os.fdopen(fd, "rb") as file, clear_errors("read", where / name):
        data = file.read(limit + 1)
    if len(data) > limit:
        raise StoreError(f"{where / name} is larger than {limit >> 20} MiB")
    return data


def write_whole(folder: int, name: str, data: bytes, where: Path) -> None:
    """Writes a file at once: `name` then holds `data` on disk, or (after a crash) what it held before."""
    temporary = f"{TMP_PREFIX}{name}-{os.getpid()}"
    with clear_errors("write", where / name):
        fd = os.open(
            temporary,
            os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC,
            0o644,
            dir_fd=folder,
        )
        try:
            with os.fdopen(fd, "wb") as file:
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
            os.replace(temporary, name, src_dir_fd=folder, dst_dir_fd=folder)
        except OSError:
            os.unlink(temporary, dir_fd=folder)
            raise
        os.fsync(folder)


def remove_temporaries(folder: int) -> None:
    """Removes what `write_whole` left in `folder` when its process was killed."""
    for name in os.listdir(folder):
        if name.startswith(TMP_PREFIX):
            os.unlink(name, dir_fd=folder)


def append_line(folder: int, name: str, line: bytes, limit: int, where: Path) -> None:
    """Appends `line`, which ends in a newline: it is then on disk as a whole, or the file is as it was.

    A file that would grow beyond `limit` bytes is refused, since nobody could read it afterwards.
    """
    fd = open_regular(folder, name, os.O_WRONLY | os.O_APPEND | os.O_CREAT, where)
    if fd is None:
        raise StoreError(f"can't append to {where / name}: its directory is gone")
    try:
        with clear_errors("append to", where / name):
            before = os.fstat(fd).st_size
            if before + len(line) > limit:
                raise StoreError(f"{where / name} would be larger than {limit >> 20} MiB")
            if os.write(fd, line) != len(line):
                os.ftruncate(fd, before)
                raise StoreError(f"can't append to {where / name}: no space left for a whole line")
            os.fsync(fd)
            if before == 0:
                os.fsync(folder)
    finally:
        os.close(fd)


def cut_torn_tail(folder: int, name: str, limit: int, where: Path) -> int:
    """How many bytes after the last newline were cut off; 0 where the file is whole or absent."""
    data = read_bounded(folder, name, limit, where)
    if data is None or not data or data.endswith(b"\n"):
        return 0
    keep = data.rfind(b"\n") + 1
    fd = open_regular(folder, name, os.O_WRONLY, where)
    if fd is None:
        return 0
    try:
        with clear_errors("repair", where / name):
            os.ftruncate(fd, keep)
            os.fsync(fd)
    finally:
        os.close(fd)
    return len(data) - keep


def _kind(folder: int, name: str) -> str:
    """What stands in a file's place (`a directory`, `a FIFO`…), empty for a regular file or nothing."""
    try:
        mode = os.stat(name, dir_fd=folder, follow_symlinks=False).st_mode
    except OSError:
        return ""
    return "" if stat.S_ISREG(mode) else _kind_of(mode)


def _kind_of(mode: int) -> str:
    """The name of a file type."""
    kinds = {stat.S_IFDIR: "a directory", stat.S_IFIFO: "a FIFO", stat.S_IFLNK: "a symbolic link"}
    return kinds.get(stat.S_IFMT(mode), "a device or socket")
