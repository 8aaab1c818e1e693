"""What the sandbox asks of the operating system: processes seen from outside, sealed memory, printed text."""

from __future__ import annotations

import ctypes
import errno
import os
import signal
import threading
from collections.abc import Iterable
from contextlib import suppress
from typing import IO

TAIL_BYTES = 4000


class Tail:
    """The last bytes of what a sandbox printed: for a person to read, never to be believed."""

    def __init__(self) -> None:
        self.data = b""
        self.thread: threading.Thread | None = None

    def follow(self, pipe: IO[bytes]) -> None:
        """Reads `pipe` to its end in a thread of its own."""
        self.thread = threading.Thread(target=self.drain, args=(pipe,), daemon=True)
        self.thread.start()

    def drain(self, pipe: IO[bytes]) -> None:
        """Keeps the last bytes of `pipe`."""
        with pipe:
            while chunk := pipe.read(65536):
                self.data = (self.data + chunk)[-TAIL_BYTES:]

    def join(self) -> None:
        """Waits for the reader, briefly."""
        if self.thread is not None:
            self.thread.join(timeout=1)

    def text(self) -> str:
        """The text, as far as it is text."""
        return self.data.decode(errors="replace")

    def last_line(self) -> str:
        """The last line that is not empty, printable characters alone, at most 200 of them."""
        lines = [line for line in self.text().splitlines() if line.strip()]
        return "".join(c for c in lines[-1] if c.isprintable())[-200:] if lines else ""


def plain(said: object, limit: int) -> str:
    """A candidate's text as one line of printable characters; "" where it is no text."""
    text = said[: 4 * limit] if isinstance(said, str) else ""
    return "".join(c for c in " ".join(text.split()) if c.isprintable())[:limit]


def descendants(pid: int) -> list[int]:
    """`pid` and every process below it."""
    found, pending = [], [pid]
    while pending:
        pid = pending.pop()
        found.append(pid)
        with suppress(OSError, ValueError):
            for task in os.listdir(f"/proc/{pid}/task"):
                with open(f"/proc/{pid}/task/{task}/children") as file:
                    pending += map(int, file.read().split())
    return found


def stopped(pid: int) -> bool:
    """Whether no thread of a process can run: all stopped, dead or gone."""
    with suppress(OSError, IndexError):
        for task in os.listdir(f"/proc/{pid}/task"):
            with suppress(FileNotFoundError, ProcessLookupError), open(f"/proc/{pid}/task/{task}/stat", "rb") as file:
                if file.read().rsplit(b")", 1)[1].split()[0] not in b"TtZX":
                    return False
    return True


def off_core(pids: Iterable[int]) -> None:
    """Returns when every stopped thread has left its core: one counts as stopped a moment before it has.

    The kernel lets nobody see a thread's system call before it is off its core, and waits for that.
    """
    for pid in pids:
        with suppress(OSError):
            for task in os.listdir(f"/proc/{pid}/task"):
                with suppress(OSError), open(f"/proc/{pid}/task/{task}/syscall", "rb") as file:
                    file.read()


def run_times(pids: Iterable[int]) -> dict[int, int]:
    """The time on a core of every thread that is not dead, in ns."""
    found: dict[int, int] = {}
    for pid in pids:
        with suppress(OSError):
            for task in os.listdir(f"/proc/{pid}/task"):
                with suppress(OSError, IndexError, ValueError):
                    with open(f"/proc/{pid}/task/{task}/stat", "rb") as file:
                        dead = file.read().rsplit(b")", 1)[1].split()[0] in b"ZX"
                    with open(f"/proc/{pid}/task/{task}/schedstat", "rb") as file:
                        found |= {} if dead else {int(task): int(file.read().split()[0])}
    return found


def send_signal(handle: int, number: int) -> None:
    """Sends a signal to the process of a pidfd, which may be gone."""
    with suppress(ProcessLookupError, PermissionError):
        signal.pidfd_send_signal(handle, number)


def read_memory(pid: int, address: int, target: int, nbytes: int) -> int:
    """How many bytes of another process were read into this one's at `target`; `OSError` where that is not allowed."""
    libc = ctypes.CDLL(None, use_errno=True)
    done = 0
    while done < nbytes:  # one call moves 2 GB at most
        ours = (ctypes.c_uint64 * 2)(target + done, nbytes - done)
        theirs = (ctypes.c_uint64 * 2)(address + done, nbytes - done)
        got = libc.process_vm_readv(pid, ours, ctypes.c_ulong(1), theirs, ctypes.c_ulong(1), ctypes.c_ulong(0))
        if got < 0 and ctypes.get_errno() in (errno.EPERM, errno.ENOSYS):
            raise OSError(ctypes.get_errno(), "process_vm_readv refused")
        if got <= 0:
            break
        done += got
    return done


def memory_file(name: str, nbytes: int) -> int:
    """A descriptor of zeroed memory of a fixed size, which nobody can shrink under a reader."""
    import fcntl

    fd = os.memfd_create(f"roofmark-{name}", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    os.ftruncate(fd, nbytes)
    fcntl.fcntl(fd, 1033, 0x0002 | 0x0004 | 0x0001)  # F_ADD_SEALS: SHRINK, GROW, SEAL
    return fd
