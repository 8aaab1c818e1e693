"""The referee's end of a sandbox: a zygote, the children it forks, and how each of them ended."""

from __future__ import annotations

import mmap
import os
import secrets
import select
import shutil
import signal
import socket
import subprocess
import tempfile
import threading
import time
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import IO, NoReturn

from roofmark.backends import Backend
from roofmark.errors import CandidateError, DeviceError
from roofmark.records import Isolation, Status
from roofmark.sandbox import folders, seccomp
from roofmark.sandbox import policy as policies
from roofmark.sandbox.cache import unpack
from roofmark.sandbox.policy import Policy
from roofmark.sandbox.runner import Message, receive, send
from roofmark.sandbox.runner_devices import PAGE_BYTES

POLL_S = 0.02
FREEZE_S = 5.0
STOPPING_NS = 50_000
START_S = 120.0
TAIL_BYTES = 4000


class CandidateEnded(CandidateError):
    """The candidate's process ended, hung or broke the protocol: the status of its shape, and why."""

    def __init__(self, status: Status, message: str) -> None:
        super().__init__(message)
        self.status = status


@dataclass(frozen=True)
class Exit:
    """How a child ended: exit code, signal, and the reason where it was killed on purpose."""

    code: int
    signal: int
    reason: str


class Sandbox:
    """A zygote under a policy. Use as a context manager: everything of it is gone at the end."""

    def __init__(
        self, isolation: Isolation, device: str, backend: Backend, *, twin: Sandbox | None = None,
        limits: policies.Limits | None = None,
    ) -> None:  # fmt: skip
        self.backend = backend
        # twins share a folder, so that nothing inside tells one from the other and each sees what the other kept
        self.folder: Path = twin.folder if twin else policies.prepare_folder(backend.probe)
        self.held = -1 if twin else folders.hold(self.folder)
        self.policy = Policy(isolation, device, self.folder, limits or policies.Limits())
        self.process: subprocess.Popen[bytes] | None = None
        self.control: socket.socket | None = None
        self.tail = Tail()
        self.own_pids: frozenset[int] = frozenset()
        self.ready = False

    @property
    def cache_dir(self) -> Path:
        """Where the compile cache lies, as the referee sees it."""
        return self.folder / "cache"

    def __enter__(self) -> Sandbox:
        self.launch()
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def start(self) -> None:
        """Starts the zygote and waits until it can fork; `DeviceError` where it can't."""
        self.launch()
        self.await_ready()

    def launch(self) -> None:
        """Starts the zygote, which imports torch and the language on its own time."""
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        read_end, write_end = os.pipe()
        with tempfile.TemporaryFile() as filter_file:
            filter_file.write(seccomp.program())
            filter_file.seek(0)
            # native isolation installs its own: a number more among the descriptors would be seen inside
            passed = [filter_file.fileno()] if self.policy.isolation is Isolation.BUBBLEWRAP else []
            line = policies.command(self.policy, filter_file.fileno(), self.config())
            self.process = subprocess.Popen(
                line, pass_fds=passed, stdin=theirs.fileno(),
                stdout=write_end, stderr=write_end, env=policies.environment(self.policy),
                start_new_session=True,
            )  # fmt: skip
        theirs.close()
        os.close(write_end)
        self.tail.follow(os.fdopen(read_end, "rb", buffering=0))
        self.control = ours
        self.ready = False

    def await_ready(self) -> None:
        """Waits until the zygote can fork."""
        assert self.control is not None
        assert self.process is not None
        self.control.settimeout(START_S)
        try:
            receive(self.control)
        except (EOFError, TimeoutError, OSError, ValueError) as error:
            said = self.tail.text()[-300:] or str(error)
            self.close()
            raise DeviceError(
                f"the sandbox did not start ({self.policy.isolation.value}): {said}",
                hint="roofmark doctor says what is missing",
            ) from error
        self.own_pids = frozenset(descendants(self.process.pid))
        self.ready = True

    def config(self) -> dict[str, object]:
        """What the zygote is told: paths and limits, nothing of the problem."""
        limits = self.policy.limits
        return {
            "modules": list(self.backend.modules),
            "environment": dict(self.backend.environment),
            "probe": f"{self.policy.inside}/probe.py",
            "devices": f"{self.policy.inside}/runner_devices.py",
            "files": f"{self.policy.inside}/runner_files.py",
            "scratch": self.policy.scratch,
            "cache": self.policy.cache,
            "own_pids": self.policy.isolation is not Isolation.UNSAFE,
            "poll_s": POLL_S,
            "memory_bytes": limits.memory_bytes,
            # CUDA reserves far more addresses than it uses
            "address_space_bytes": 0 if self.policy.device == "cuda" else limits.address_space_bytes,
            "scratch_bytes": limits.scratch_bytes,
            "cache_bytes": limits.cache_bytes,
            "max_processes": limits.max_processes,
        }

    def fork(self, setup: Message, source: bytes) -> Child:
        """A new child that holds the candidate's `source`; restarts the zygote where the last child felled it."""
        if self.process is None or (self.ready and not self.empty()):
            self.stop()
            self.launch()
        if not self.ready:
            self.await_ready()
        assert self.control is not None
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        page_fd = memory_file("page", PAGE_BYTES)
        source_fd = memory_file("source", len(source))
        os.pwrite(source_fd, source, 0)
        try:
            self.control.settimeout(START_S)
            send(self.control, {"op": "fork"}, (theirs.fileno(),))
            send(ours, setup, (source_fd, page_fd))
        finally:
            theirs.close()
            os.close(source_fd)
        page = mmap.mmap(page_fd, PAGE_BYTES)
        os.close(page_fd)
        return Child(self, ours, page)

    def stop(self) -> None:
        """Ends the zygote and with it every process of its namespace."""
        if self.control is not None:
            self.control.close()
            self.control = None
        if self.process is not None:
            with suppress(subprocess.TimeoutExpired):
                self.process.wait(timeout=2)
            with suppress(ProcessLookupError):
                self.process.kill()
            self.process.wait()
            self.process = None
        self.tail.join()

    def empty(self) -> bool:
        """Whether the zygote lives and has removed all that its last child left: what stays would meet the next."""
        with suppress(EOFError, OSError, ValueError):
            return self.ask({"op": "empty"}).get("emptied") is True
        return False

    def keep_cache(self) -> None:
        """Lays what the last child left in its cache, and nothing else, where this sandbox's children find it.

        A zygote that can't tell keeps nothing: the candidate's loss, who felled it.
        """
        packed: object = None
        fd = memory_file("pack", self.policy.limits.cache_bytes)
        try:
            with suppress(EOFError, OSError, ValueError):
                packed = self.ask({"op": "pack", "room": self.policy.limits.cache_bytes}, (fd,)).get("packed")
            with suppress(ValueError):
                unpack(fd, packed, self.cache_dir)
                return
            self.stop()
        finally:
            os.close(fd)

    def ask(self, message: Message, fds: tuple[int, ...] = ()) -> Message:
        """The zygote's answer while it has no child; `OSError`, `EOFError` or `ValueError` where none comes."""
        if self.control is None:
            raise EOFError
        self.control.settimeout(START_S)
        send(self.control, message, fds)
        return receive(self.control)[0]

    def close(self) -> None:
        """Ends everything and removes the folder."""
        self.stop()
        if self.held >= 0:
            shutil.rmtree(self.folder, ignore_errors=True)
            os.close(self.held)
            self.held = -1


class Child:
    """One process that holds a candidate. Requests are answered, or `CandidateEnded` is raised."""

    def __init__(self, sandbox: Sandbox, channel: socket.socket, page: mmap.mmap) -> None:
        self.sandbox = sandbox
        self.channel = channel
        self.page = page
        self.words = memoryview(page).cast("I")
        self.exit: Exit | None = None
        self.pids: frozenset[int] = frozenset()
        self.frozen = False
        self.run_ns: dict[int, int] = {}

    def __enter__(self) -> Child:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None,
                 trace: TracebackType | None) -> None:  # fmt: skip
        self.close()

    def request(self, message: Message, *, timeout_s: float, fds: tuple[int, ...] = ()) -> Message:
        """The answer to `message`."""
        return self.answer(self.post(message, fds), timeout_s=timeout_s)

    def post(self, message: Message, fds: tuple[int, ...] = ()) -> str:
        """Sends `message` and returns the nonce that its answer must carry."""
        nonce = secrets.token_hex(8)
        self.thaw()
        try:
            send(self.channel, {**message, "nonce": nonce}, fds)
        except OSError:
            self.wait_for_exit()
        return nonce

    def answer(self, nonce: str, *, timeout_s: float) -> Message:
        """The answer that carries `nonce`; a failure inside comes as `CandidateEnded`."""
        deadline = time.monotonic() + timeout_s
        if not self.poll(0.0):
            self.thaw()
        while not self.poll(min(max(deadline - time.monotonic(), 0.0), 1.0)):
            if time.monotonic() >= deadline:
                self.kill()
                raise CandidateEnded(Status.TIMEOUT, f"no answer within {timeout_s:.3g} s")
        try:
            message, _ = receive(self.channel)
        except (EOFError, OSError):
            self.wait_for_exit()
        except ValueError as error:
            raise CandidateEnded(Status.RULE_BROKEN, "the runner's channel carried what is no message") from error
        if message.get("nonce") != nonce:
            raise CandidateEnded(Status.RULE_BROKEN, "an answer came that nobody had asked for")
        if "error" in message:
            raise self.failed(message)
        return message

    def poll(self, timeout_s: float) -> bool:
        """Whether the channel has something to read, its end included."""
        ready, _, _ = select.select([self.channel], [], [], timeout_s)
        return bool(ready)

    def alive(self) -> bool:
        """Whether nothing has been heard of the child's end."""
        control = self.sandbox.control
        if control is None or self.exit is not None:
            return False
        ready, _, _ = select.select([control], [], [], 0)
        return not ready

    def freeze(self) -> None:
        """Stops every process of the candidate: until `thaw` it can neither look ahead nor change an answer."""
        process = self.sandbox.process
        if self.exit is not None or process is None:
            return
        self.frozen = True
        for pid in self.pids:
            signal_quietly(pid, signal.SIGSTOP)
        deadline = time.monotonic() + FREEZE_S
        while True:
            pids = frozenset(descendants(process.pid)) - self.sandbox.own_pids
            moving = [pid for pid in pids if pid not in self.pids or not stopped(pid)]
            self.pids = pids
            if not moving:
                self.run_ns = run_times(pids)
                return
            for pid in moving:
                signal_quietly(pid, signal.SIGSTOP)
            if time.monotonic() > deadline:
                self.kill()
                raise CandidateEnded(Status.RULE_BROKEN, "its processes could not be stopped between calls")

    def must_have_rested(self) -> None:
        """Raises `CandidateEnded` where a process ran since `freeze`: the kernel itself sends SIGCONT for whoever asks.

        A thread counts as stopped a moment before it leaves its core; so much is forgiven.
        """
        if self.exit is not None or not self.frozen:
            return
        now = run_times(self.pids)
        ran_ns = sum(abs(now.get(task, 0) - before) for task, before in self.run_ns.items())
        if ran_ns > STOPPING_NS or not now.keys() <= self.run_ns.keys():
            self.kill()
            raise CandidateEnded(Status.RULE_BROKEN, "it ran while it was stopped between calls")

    def thaw(self) -> None:
        """Lets the candidate's processes run again."""
        if self.frozen:
            self.frozen = False
            for pid in self.pids:
                signal_quietly(pid, signal.SIGCONT)

    def failed(self, message: Message) -> CandidateEnded:
        """An exception inside, as the end of the shape."""
        kind = {"memory": Status.OUT_OF_MEMORY, "compile": Status.COMPILE_ERROR}
        text = f"{plain(message.get('type'), 80)}: {plain(message.get('text'), 600)}"
        said = message["error"] if isinstance(message["error"], str) else ""
        return CandidateEnded(kind.get(said, Status.CRASH), text)

    def wait_for_exit(self) -> NoReturn:
        """Raises `CandidateEnded` with the way the child ended."""
        how = self.reap(kill=False)
        said = f"; it said: {self.sandbox.tail.last_line()}" if self.sandbox.tail.last_line() else ""
        if how.reason in ("memory", "processes"):
            raise CandidateEnded(Status.OUT_OF_MEMORY, f"over the limit of {how.reason}")
        if how.reason == "asked":
            raise CandidateEnded(Status.CRASH, "the runner closed its channel")
        what = f"killed by signal {how.signal}" if how.signal else f"exited with code {how.code} without an answer"
        raise CandidateEnded(Status.CRASH, f"{how.reason or what}{said}")

    def reap(self, *, kill: bool) -> Exit:
        """How the child ended; a child that lives on is killed, at once or after a second."""
        if self.exit is not None:
            return self.exit
        self.thaw()  # a stopped process can't end by itself
        control = self.sandbox.control
        report: Message = {}
        try:
            assert control is not None
            if not kill:
                ready, _, _ = select.select([control], [], [], 1.0)
                kill = not ready
            if kill:
                send(control, {"op": "kill"})
            control.settimeout(10.0)
            report, _ = receive(control)
        except (EOFError, OSError, ValueError, AssertionError):
            self.sandbox.stop()
            report = {"reason": "the sandbox was torn down"}
        self.exit = Exit(int(report.get("code", 0)), int(report.get("signal", 0)), str(report.get("reason", "")))
        return self.exit

    def kill(self) -> None:
        """Ends the child and whatever it started."""
        self.reap(kill=True)

    def close(self) -> None:
        """Ends the child, if it still runs, and lets its shared page go."""
        self.channel.close()
        self.reap(kill=False)
        self.words.release()
        with suppress(BufferError):
            self.page.close()


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


def signal_quietly(pid: int, number: int) -> None:
    """Sends a signal to a process that may be gone."""
    with suppress(ProcessLookupError):
        os.kill(pid, number)


def memory_file(name: str, nbytes: int) -> int:
    """A descriptor of zeroed memory of a fixed size, which nobody can shrink under a reader."""
    import fcntl

    fd = os.memfd_create(f"roofmark-{name}", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    os.ftruncate(fd, nbytes)
    fcntl.fcntl(fd, 1033, 0x0002 | 0x0004 | 0x0001)  # F_ADD_SEALS: SHRINK, GROW, SEAL
    return fd
