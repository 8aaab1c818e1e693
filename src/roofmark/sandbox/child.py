"""One process that holds a candidate: asked over a channel, stopped between calls, and how it ended."""

from __future__ import annotations

import errno
import mmap
import os
import secrets
import select
import signal
import socket
import time
from contextlib import suppress
from dataclasses import dataclass
from types import TracebackType
from typing import TYPE_CHECKING, NoReturn

from roofmark.errors import CandidateError, DeviceError
from roofmark.records import Status
from roofmark.sandbox.runner import Message, receive, send
from roofmark.sandbox.system import descendants, off_core, plain, read_memory, run_times, send_signal, stopped

if TYPE_CHECKING:
    from torch import Tensor

    from roofmark.sandbox.process import Sandbox

FREEZE_S = 5.0
REPORT_S = 1.0
STOPPING_NS = 50_000


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


class Child:
    """One process that holds a candidate. Requests are answered, or `CandidateEnded` is raised."""

    def __init__(self, sandbox: Sandbox, channel: socket.socket, page: mmap.mmap) -> None:
        self.sandbox = sandbox
        self.channel = channel
        self.page = page
        self.words = memoryview(page).cast("I")
        self.exit: Exit | None = None
        self.pid = 0  # of the runner itself, known from the first stop, before it holds a candidate
        self.handles: dict[int, int] = {}
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

    def alive(self, wait_s: float = 0.0) -> bool:
        """Whether nothing is heard of the child's end within `wait_s`."""
        control = self.sandbox.control
        if control is None or self.exit is not None:
            return False
        ready, _, _ = select.select([control], [], [], wait_s)
        return not ready

    def freeze(self) -> None:
        """Stops every process of the candidate: until `thaw` it can neither look ahead nor change an answer."""
        process = self.sandbox.process
        if self.exit is not None or process is None:
            return
        self.frozen = True
        for handle in self.handles.values():  # at once; the look-round comes after
            send_signal(handle, signal.SIGSTOP)
        self._stop_all()
        deadline = time.monotonic() + FREEZE_S
        while True:
            pids = set(descendants(process.pid)) - self.sandbox.own_pids
            moving = self._hold(pids) + [pid for pid in self.handles if not stopped(pid)]
            if not moving:
                break
            for pid in moving:
                send_signal(self.handles[pid], signal.SIGSTOP)
            if time.monotonic() > deadline:
                self.kill()
                raise CandidateEnded(Status.RULE_BROKEN, "its processes could not be stopped between calls")
        if not self.handles:
            if self.alive(REPORT_S):  # the dead are gone from /proc a moment before the zygote tells
                raise DeviceError("/proc does not show the sandbox's processes", hint="mount it without hidepid")
            self.wait_for_exit()
        off_core(self.handles)
        self.run_ns = run_times(self.handles)
        self.pid = self.pid or next(iter(self.handles))

    def read(self, address: int, tensor: Tensor) -> int:
        """How many bytes of a tensor were filled with what lies at `address` in the stopped runner."""
        if self.pid not in self.handles:  # the number may be another's by now
            return 0
        try:
            return read_memory(self.pid, address, tensor.data_ptr(), tensor.nbytes)
        except OSError as error:
            if error.errno == errno.ENOSYS:
                raise DeviceError("this kernel has no process_vm_readv", hint="roofmark doctor") from error
            raise CandidateEnded(Status.RULE_BROKEN, f"its memory can't be read: {error.strerror}") from error

    def _stop_all(self) -> None:
        """Has the zygote stop all of its namespace in one call: a list of processes is old before it is read."""
        control = self.sandbox.control
        if self.exit is not None or control is None:
            return
        try:
            control.settimeout(FREEZE_S)
            send(control, {"op": "stop"})
            report, _ = receive(control)
        except (EOFError, OSError, ValueError):
            self.sandbox.stop()
            report = {"reason": "the sandbox was torn down"}
        if "stopped" not in report:
            self.exit = ended(report)

    def _hold(self, pids: set[int]) -> list[int]:
        """The processes of `pids` that are new; every one is then held by a handle that outlives no number."""
        for pid in self.handles.keys() - pids:
            os.close(self.handles.pop(pid))
        new = []
        for pid in pids - self.handles.keys():
            with suppress(ProcessLookupError):
                self.handles[pid] = os.pidfd_open(pid)
                new.append(pid)
        return new

    def must_have_rested(self) -> None:
        """Raises `CandidateEnded` where a process ran since `freeze`: the kernel itself sends SIGCONT for whoever asks.

        What a kernel that does not tell when a thread has left its core may add is forgiven.
        """
        if self.exit is not None or not self.frozen:
            return
        now = run_times(self.handles)
        ran_ns = sum(abs(now.get(task, 0) - before) for task, before in self.run_ns.items())
        if ran_ns <= STOPPING_NS and now.keys() <= self.run_ns.keys():
            return
        if not self.alive():  # killed where it stood: over a limit, or by the kernel
            self.wait_for_exit()
        self.kill()
        raise CandidateEnded(Status.RULE_BROKEN, "it ran while it was stopped between calls")

    def thaw(self) -> None:
        """Lets the candidate's processes run again."""
        if self.frozen:
            self.frozen = False
            for handle in self.handles.values():
                send_signal(handle, signal.SIGCONT)

    def failed(self, message: Message) -> CandidateEnded:
        """An exception inside, as the end of the shape."""
        kind = {"memory": Status.OUT_OF_MEMORY, "compile": Status.COMPILE_ERROR}
        text = f"{plain(message.get('type'), 80)}: {plain(message.get('text'), 600)}"
        line = message.get("line")
        if type(line) is int and 0 < line < 1 << 24:
            text += f" (line {line})"
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
        self.exit = ended(report)
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
        self._hold(set())


def ended(report: Message) -> Exit:
    """The zygote's report of a child's end."""
    return Exit(int(report.get("code", 0)), int(report.get("signal", 0)), str(report.get("reason", "")))
