"""Runs a candidate: the zygote and the children it forks. Copied into the sandbox; stdlib and torch alone.

The zygote imports torch and the kernel language, then forks one child a shape. It never holds anything of
the candidate. A child is wholly the candidate's: whatever it says is evidence against itself alone, and
every claim of it that matters is checked by the referee from outside.
"""

from __future__ import annotations

import array
import ctypes
import errno
import gc
import importlib.util
import json
import mmap
import os
import resource
import select
import shutil
import signal
import socket
import sys
import time
import traceback
import types
from collections.abc import Callable
from contextlib import suppress
from typing import Any

Message = dict[str, Any]

MAX_MESSAGE = 1 << 17
FIXED_MTIME = 1_700_000_000  # caches keyed by the candidate file's time must hit in every child

MANY_OBJECTS = 5000

PR_SET_PDEATHSIG, PR_SET_DUMPABLE = 1, 4


def send(channel: socket.socket, message: Message, fds: tuple[int, ...] = ()) -> None:
    """Sends one message, with descriptors, as one datagram."""
    data = json.dumps(message).encode()
    if len(data) > MAX_MESSAGE:
        raise ValueError("message too large")
    ancillary = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", fds))] if fds else []
    channel.sendmsg([data], ancillary)


def receive(channel: socket.socket, max_fds: int = 0) -> tuple[Message, list[int]]:
    """One message and its descriptors; `EOFError` at the end, `ValueError` for what is no JSON object."""
    room = socket.CMSG_SPACE(max_fds * 4) if max_fds else 0
    data, ancillary, _flags, _address = channel.recvmsg(MAX_MESSAGE, room)
    fds: list[int] = []
    for level, kind, payload in ancillary:
        if level == socket.SOL_SOCKET and kind == socket.SCM_RIGHTS:
            numbers = array.array("i")
            numbers.frombytes(payload[: len(payload) // 4 * 4])
            fds += numbers
    if not data:
        raise EOFError
    try:
        message = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise ValueError("not a JSON message") from error
    if not isinstance(message, dict):
        raise ValueError("not a JSON object")
    return message, fds


# ---- the zygote --------------------------------------------------------------------------------


def control_channel() -> socket.socket:
    """The channel that came as standard input, which is empty from now on: its number is the same in every phase."""
    fd = os.dup(0)
    null = os.open("/dev/null", os.O_RDONLY)
    os.dup2(null, 0)
    os.close(null)
    return socket.socket(fileno=fd)


def zygote(control: socket.socket, config: Message) -> None:
    """Serves fork requests until the referee hangs up."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the one signal that Python lets reach a pid 1
    ctypes.CDLL(None).prctl(PR_SET_DUMPABLE, 0, 0, 0, 0)
    import torch

    files = load_file("roofmark_files", config["files"])
    for name in config["modules"]:
        importlib.import_module(name)
    warm(config, files)
    gc.collect()
    gc.freeze()
    send(control, {"ready": True, "torch": torch.__version__, "python": sys.version.split()[0]})
    while True:
        try:
            message, fds = receive(control, max_fds=4)
        except EOFError:
            return
        report: Message = {}
        if message.get("op") == "fork":
            fill_scratch(config, files)
            pid = fork_child(control, fds.pop(), config)
            report = babysit(control, pid, config)
        elif message.get("op") == "pack":  # the child is dead: what it left lies still
            report = {"packed": files.pack(f"{config['scratch']}/cache", fds[0], message["room"])}
        elif message.get("op") == "empty":
            report = {"emptied": all(empty(place) for place in scratch_places(config))}
        for fd in fds:
            os.close(fd)
        with suppress(BrokenPipeError, ConnectionResetError):
            if report:
                send(control, report)


def warm(config: Message, files: Any) -> None:
    """Lets the language's compiler start, where the scratch is this zygote's own. Nothing hangs on it but time."""
    start = getattr(load_file("roofmark_probe", config["probe"]), "warm", None)
    if start is None or not config["own_pids"]:
        return
    fill_scratch(config, files)  # emptied again for the first child
    try:
        start(f"{config['scratch']}/cache")
    except Exception:  # noqa: BLE001 - a language may fail in its own way: said, and met again by the first child
        traceback.print_exc()


def fork_child(control: socket.socket, channel_fd: int, config: Message) -> int:
    """The pid of a new child, which serves the channel and never returns from here."""
    sys.stdout.flush()
    pid = os.fork()
    if pid == 0:
        status = 1
        try:
            control.close()
            status = child(socket.socket(fileno=channel_fd), config)
        except BaseException:  # noqa: BLE001 - the process boundary; a person may read it, nobody believes it
            traceback.print_exc()
        finally:
            os._exit(status)
    os.close(channel_fd)
    return pid


def babysit(control: socket.socket, pid: int, config: Message) -> Message:
    """How the child ended, once it and everything it started are gone."""
    status: int | None = None
    due = 0.0
    while status is None:
        reason = heed(control, pid, config, due - time.monotonic())
        if not reason and time.monotonic() >= due:
            reason = over_limit(config, pid, control)
            due = time.monotonic() + config["poll_s"]
        if reason:
            sweep(config, pid)
            status = os.waitpid(pid, 0)[1]
        else:
            status = bury(pid)
    control.settimeout(None)
    sweep(config, pid)
    bury(pid)
    if reason == "referee gone":
        os._exit(0)
    code = os.waitstatus_to_exitcode(status)
    return {"exited": True, "code": max(code, 0), "signal": max(-code, 0), "reason": reason}


def heed(control: socket.socket, pid: int, config: Message, wait_s: float) -> str:
    """Does what the referee asks within `wait_s`: stops the child, or says why it must end."""
    if not select.select([control], [], [], max(wait_s, 0.0))[0]:
        return ""
    try:
        message, _ = receive(control)
    except EOFError:
        return "referee gone"
    if message.get("op") != "stop":
        return "asked"
    with suppress(ProcessLookupError):  # all at once: the kernel lets nobody fork meanwhile
        os.kill(-1, signal.SIGSTOP) if config["own_pids"] else os.killpg(pid, signal.SIGSTOP)
    with suppress(BrokenPipeError, ConnectionResetError):
        send(control, {"stopped": True})
    return ""


def bury(pid: int) -> int | None:
    """The wait status of `pid`, if it has ended; this process is pid 1, so every orphan is its to reap."""
    status = None
    with suppress(ChildProcessError):
        while (done := os.waitpid(-1, os.WNOHANG))[0]:
            status = done[1] if done[0] == pid else status
    return status


def over_limit(config: Message, pid: int, control: socket.socket) -> str:
    """Which limit the process tree exceeds, or why it must end, or ""; threads count as processes."""
    if not config["own_pids"]:
        return ""
    tasks = 0
    resident_kb = 0
    for name in os.listdir("/proc"):
        if not name.isdigit() or int(name) == os.getpid():
            continue
        if reason := heed(control, pid, config, 0.0):  # a stop does not wait for a long list
            return reason
        with suppress(OSError, ValueError):
            fields = read_fields(f"/proc/{name}/status")
            tasks += int(fields.get("Threads", "1"))
            resident_kb += sum(int(fields.get(k, "0 kB").split()[0]) for k in ("RssAnon", "RssShmem"))
        if tasks > config["max_processes"]:
            return "processes"
    # memory that no process maps shows there alone; a child that stands still takes none of it
    machine = read_fields("/proc/meminfo")
    scarce = int(machine["MemAvailable"].split()[0]) < int(machine["MemTotal"].split()[0]) // 32
    return "memory" if (scarce and not stands_still(pid)) or resident_kb * 1024 > config["memory_bytes"] else ""


def stands_still(pid: int) -> bool:
    """Whether the referee has stopped the process."""
    try:
        return read_fields(f"/proc/{pid}/status")["State"].startswith("T")
    except (OSError, KeyError):
        return False


def read_fields(path: str) -> dict[str, str]:
    """The lines `name: value` of a file of /proc."""
    with open(path) as file:
        return {name: value.strip() for name, _, value in (line.partition(":") for line in file)}


def sweep(config: Message, pid: int) -> None:
    """Kills every other process of the namespace and waits until none is left but zombies."""
    for _ in range(2000):
        try:
            os.kill(-1, signal.SIGKILL) if config["own_pids"] else os.killpg(pid, signal.SIGKILL)
        except ProcessLookupError:
            break
        if not config["own_pids"] or not others_alive():
            break
        time.sleep(0.002)


def others_alive() -> bool:
    """Whether the namespace holds a process besides this one that is not a zombie."""
    for name in os.listdir("/proc"):
        if name.isdigit() and int(name) != os.getpid():
            with suppress(OSError, IndexError), open(f"/proc/{name}/stat") as file:
                if file.read().rsplit(")", 1)[1].split()[0] not in "ZX":
                    return True
    return False


def scratch_places(config: Message) -> tuple[str, ...]:
    """The folders that a candidate can write."""
    shared = ("/dev/shm",) if config["own_pids"] and os.path.isdir("/dev/shm") else ()
    return (config["scratch"], *shared)


def empty(place: str) -> bool:
    """Whether all that a candidate left in `place` could be removed."""
    for entry in list(os.scandir(place)):
        with suppress(OSError, RecursionError):
            shutil.rmtree(entry.path) if entry.is_dir(follow_symlinks=False) else os.unlink(entry.path)
    return not os.listdir(place)


def fill_scratch(config: Message, files: Any) -> None:
    """Lays the folders of a new child in the empty scratch, and the stored compile cache."""
    for place in scratch_places(config):
        empty(place)
    for folder in ("cache", "tmp", "work"):
        os.mkdir(f"{config['scratch']}/{folder}")
    files.copy_tree(config["cache"], f"{config['scratch']}/cache", config["cache_bytes"])


# ---- the child ---------------------------------------------------------------------------------


def child(channel: socket.socket, config: Message) -> int:
    """Serves the referee's requests with the candidate inside, until the referee hangs up."""
    os.setsid()
    signal.signal(signal.SIGINT, signal.default_int_handler)
    reopen_output()
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    ctypes.CDLL(None).prctl(PR_SET_DUMPABLE, 1, 0, 0, 0)  # the referee reads the outputs where they lie
    set_limits(config)
    setup, fds = receive(channel, max_fds=4)
    source_fd, page_fd = fds
    source = os.fdopen(source_fd, "rb").read()
    devices = load_file("roofmark_devices", config["devices"])
    page = mmap.mmap(page_fd, devices.PAGE_BYTES)
    os.close(page_fd)
    os.chdir(f"{config['scratch']}/work")
    setup["cache"] = f"{config['scratch']}/cache"
    os.environ.update({k: v.replace("{cache}", setup["cache"]) for k, v in config["environment"].items()})
    runner = Runner(channel, page, setup, load_file("roofmark_probe", config["probe"]), devices)
    runner.prepare(source)
    sys.modules["__main__"] = types.ModuleType("__main__")  # a candidate that looks there finds nothing to patch
    while True:
        try:
            message, fds = receive(channel, max_fds=64)
        except EOFError:
            return 0
        answer = runner.serve(message, fds)
        answer["nonce"] = message.get("nonce")
        send(channel, answer)


def reopen_output() -> None:
    """Gives this child descriptors of its own to print to: their flags would else outlive it in those of the zygote."""
    with suppress(OSError):
        own = os.open("/proc/self/fd/1", os.O_WRONLY)
        for fd in (1, 2):
            os.dup2(own, fd)
        os.close(own)


def set_limits(config: Message) -> None:
    """Sets the resource limits that hold for one process each."""
    address_space = config["address_space_bytes"] or resource.RLIM_INFINITY
    for limit, value in (
        (resource.RLIMIT_AS, address_space),
        (resource.RLIMIT_FSIZE, config["scratch_bytes"]),
        (resource.RLIMIT_NOFILE, 1024),
        (resource.RLIMIT_CORE, 0),
    ):
        with suppress(ValueError, OSError):
            resource.setrlimit(limit, (value, value))


def load_file(name: str, path: str, *, findable: bool = False) -> Any:
    """The module at `path`, executed under `name`; others can import it where it is `findable`."""
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise ImportError(path)
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    if not findable:
        del sys.modules[name]
    return module


def failure(error: BaseException, is_compile_error: Callable[[BaseException], bool]) -> Message:
    """An exception as a message: kind (`memory`, `compile`, `other`), type, text and the last of its trace."""
    kind = "other"
    try:
        text = str(error)
    except BaseException:  # noqa: BLE001 - a hostile __str__ must not end the report
        text = ""
    name = type(error).__name__
    lack = (errno.EAGAIN, errno.ENOMEM, errno.ENOSPC, errno.EFBIG, errno.EMFILE)
    signs = ("out of memory", "not enough memory", "can't allocate memory", "can't start new thread")
    no_memory = isinstance(error, MemoryError) or "OutOfMemory" in name
    refused = isinstance(error, OSError) and error.errno in lack
    if no_memory or refused or (isinstance(error, RuntimeError) and any(s in text.lower() for s in signs)):
        kind = "memory"
    else:
        with suppress(Exception):
            kind = "compile" if is_compile_error(error) else "other"
    return {"error": kind, "type": str(name)[:80], "text": text[:600], "line": line_of(error)}


def line_of(error: BaseException) -> int:
    """The line of the candidate's file that an exception came through last, 0 where it came through none."""
    lines = [0]
    with suppress(BaseException):
        for frame, line in traceback.walk_tb(error.__traceback__):
            if frame.f_code.co_filename.endswith("/candidate.py"):
                lines.append(line)
    return lines[-1]


class Runner:
    """A child's state. Everything it needs later is bound before the candidate is imported."""

    def __init__(self, channel: socket.socket, page: mmap.mmap, setup: Message, probe: Any, devices: Any) -> None:
        import torch

        self.torch = torch
        self.channel = channel
        self.words = memoryview(page).cast("I")
        self.setup = setup
        self.start, self.dump_kernels, self.shares = probe.start, probe.dump, probe.attribute
        self.is_compile_error = probe.is_compile_error
        self.clock_ns = time.perf_counter_ns
        self.cases: dict[str, tuple[list[Any], list[Any], list[int]]] = {}
        self.results: list[Any] = []  # kept until the next call: the referee reads them where they lie
        self.model: Any = None
        self.devices = devices
        self.device = devices.CudaSide(torch, page) if setup["device"] == "cuda" else devices.CpuSide(torch)

    def prepare(self, source: bytes) -> None:
        """Lays the candidate's file, starts the probe and touches the memory that a forward will want."""
        self.path = os.path.abspath("candidate.py")
        with open(self.path, "wb") as file:
            file.write(source)
        os.utime(self.path, (FIXED_MTIME, FIXED_MTIME))
        self.start(self.setup["cache"])
        self.device.touch(self.setup["touch_bytes"])

    def serve(self, message: Message, fds: list[int]) -> Message:
        """The answer to one request; a failure of the candidate is an answer too."""
        handler = {
            "bind": self.bind,
            "load": self.load,
            "call": self.call,
            "dump": self.dump,
            "attribute": self.attribute,
        }[message["op"]]
        try:
            return handler(message, fds)
        except BaseException as error:  # noqa: BLE001 - the process boundary
            return failure(error, self.is_compile_error)

    def bind(self, message: Message, fds: list[int]) -> Message:
        """Maps the shared tensors of a case; outputs that are not shared get room of their own."""
        specs, count = message["tensors"], message["inputs"]
        views = [self.device.map(fd, spec) for fd, spec in zip(fds, specs, strict=False)]
        views += [self.device.room(spec) for spec in specs[len(fds) :]]
        sizes = [spec["nbytes"] for spec in specs[count:]]
        self.cases[message["case"]] = (views[:count], views[count:], sizes)
        return {"ok": True}

    def load(self, message: Message, fds: list[int]) -> Message:
        """Imports the candidate and builds its `Model`."""
        module = load_file("candidate", self.path, findable=True)
        model = module.Model(**message["init"])
        if isinstance(model, self.torch.nn.Module):
            model = model.to(self.setup["device"]).eval()
        self.model = model if callable(model) else model.forward
        return {"ok": True}

    def call(self, message: Message, fds: list[int]) -> Message:
        """One forward behind the gate: its clocks, and what kind of thing it returned.

        The contents of the inputs do not exist before the referee's go, so nothing can be computed ahead.
        """
        inputs, outputs, sizes = self.cases[message["case"]]
        arguments = [view() for view in inputs]
        self.results = []
        self.collect()  # before the poisoning, which nothing may write over
        for nbytes in sizes:
            self.device.poison(nbytes)
        null = [view().clone() for view in outputs] if message.get("null") else None  # to itself nothing is copied
        model = self.model if null is None else lambda *_: null
        self.words[self.devices.READY] = message["seq"]
        self.channel.recv(1)
        with self.torch.no_grad():
            result = self.device.run(model, arguments, self.words, message["seq"], self.clock_ns)
        self.results = list(result) if isinstance(result, (tuple, list)) else [result]
        self.device.deliver(self.results, outputs)
        self.device.join()
        self.words[self.devices.ANSWERED] = message["seq"]
        return {**self.device.times(), "outputs": [self.describe(r) for r in self.results[:64]]}

    def collect(self) -> None:
        """Frees what lies in circles. What a compiler leaves is exempt from then on: it takes longer than a call."""
        gc.collect()
        if len(gc.get_objects()) > MANY_OBJECTS:
            gc.freeze()

    def describe(self, result: Any) -> Message:
        """Type, shape, dtype, strides, device and address of one returned thing."""
        if not isinstance(result, self.torch.Tensor):
            return {"type": type(result).__name__[:80]}
        extra = sorted(str(k)[:40] for k in getattr(result, "__dict__", {}) if not str(k).startswith("_dynamo"))[:8]
        plain = type(result) is self.torch.Tensor and not extra
        return {
            "address": result.data_ptr() if plain and result.layout == self.torch.strided else 0,
            "type": "Tensor" if plain else f"{type(result).__name__[:80]}{extra or ''}",
            "shape": list(result.shape)[:16],
            "dtype": str(result.dtype).removeprefix("torch."),
            "stride": list(result.stride())[:16] if result.layout == self.torch.strided else [],
            "device": result.device.type,
        }

    def dump(self, message: Message, fds: list[int]) -> Message:
        """The kernels of the language that the forward reached, their objects left in the cache."""
        kernels = self.dump_kernels(self.setup["cache"])
        return {"kernels": [str(k)[:200] for k in kernels][:256]}

    def attribute(self, message: Message, fds: list[int]) -> Message:
        """µs of one forward by class of code, as the probe sees it."""
        arguments = [view() for view in self.cases[message["case"]][0]]
        with self.torch.no_grad():
            shares = self.shares(lambda: self.model(*arguments), self.setup["device"])
        return {"shares": {str(k)[:40]: float(v) for k, v in list(shares.items())[:16]}}


if __name__ == "__main__":
    zygote(control_channel(), json.loads(sys.argv[1]))
