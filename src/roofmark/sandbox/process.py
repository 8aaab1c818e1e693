"""The referee's end of a sandbox: a zygote under a policy, and the children it forks."""

from __future__ import annotations

import mmap
import os
import shutil
import socket
import subprocess
import tempfile
from contextlib import ExitStack, suppress
from pathlib import Path

from roofmark.backends import Backend
from roofmark.errors import DeviceError
from roofmark.records import Isolation
from roofmark.sandbox import folders, seccomp
from roofmark.sandbox import policy as policies
from roofmark.sandbox.cache import unpack
from roofmark.sandbox.child import Child
from roofmark.sandbox.policy import Policy
from roofmark.sandbox.runner import Message, receive, send
from roofmark.sandbox.runner_devices import PAGE_BYTES
from roofmark.sandbox.system import Tail, descendants, memory_file

POLL_S = 0.02
START_S = 120.0
SEND_S = 10.0


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
            self.stop()
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
        self.tail.data = b""
        with ExitStack() as stack:
            ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
            stack.callback(theirs.close)
            failed = stack.enter_context(ExitStack())
            failed.callback(ours.close)
            ours.settimeout(SEND_S)  # a candidate that does not read must not hold the referee up
            page_fd, source_fd = memory_file("page", PAGE_BYTES), memory_file("source", len(source))
            stack.callback(os.close, page_fd)
            stack.callback(os.close, source_fd)
            os.pwrite(source_fd, source, 0)
            self.control.settimeout(START_S)
            send(self.control, {"op": "fork"}, (theirs.fileno(),))
            send(ours, setup, (source_fd, page_fd))
            child = Child(self, ours, mmap.mmap(page_fd, PAGE_BYTES))
            failed.pop_all()
        return child

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
