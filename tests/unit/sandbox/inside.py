"""A candidate that looks around: run inside the sandbox, it prints what it finds as one line of JSON."""

import ctypes
import json
import os
import resource
import socket
import sys
import tempfile

import torch

LIBC = ctypes.CDLL(None, use_errno=True)
CALLS = {
    "ptrace": 101, "process_vm_readv": 310, "mount": 165, "unshare": 272, "setns": 308, "bpf": 321,
    "userfaultfd": 323, "io_uring_setup": 425, "keyctl": 250, "shmget": 29, "open_tree": 428, "perf_event_open": 298,
    "pidfd_getfd": 438, "mq_open": 240, "chroot": 161, "mount_setattr": 442,
}  # fmt: skip
FOUND = {}


def note(name, look):
    try:
        FOUND[name] = look()
    except BaseException as error:  # noqa: BLE001 - whatever it is, it is the finding
        FOUND[name] = f"{type(error).__name__}: {error}"[:200]


def read(path, count=200):
    with open(path, "rb") as file:
        return file.read(count).decode(errors="replace")


def writable():
    """The folders, of all that can be seen, in which a file could be made."""
    found = []
    for top, folders, _ in os.walk("/"):
        folders[:] = [f for f in folders if not top.startswith(("/proc", "/sys"))]
        name = os.path.join(top, ".written")
        try:
            os.close(os.open(name, os.O_CREAT | os.O_WRONLY, 0o600))
            os.unlink(name)
            found.append(top)
        except OSError:
            continue
    return found


def refused():
    """The errno of each system call that should be refused."""
    result = {}
    for name, number in CALLS.items():
        ctypes.set_errno(0)
        code = LIBC.syscall(number, 0, 0, 0, 0, 0)
        result[name] = ctypes.get_errno() if code == -1 else "permitted"
    return result


def descriptors():
    """What each open descriptor is; the one that lists them is gone by then."""
    found = {}
    for number in os.listdir("/proc/self/fd"):
        try:
            found[number] = os.readlink(f"/proc/self/fd/{number}")
        except OSError:
            continue
    return found


def connect(family, place):
    with socket.socket(family) as one:
        one.settimeout(1)
        one.connect(place)
        return "connected"


def look_around(places, pid_outside):
    note("roofmark", lambda: __import__("roofmark").__file__)
    for place in places:
        note(f"read {place}", lambda place=place: read(place) if os.path.isfile(place) else os.listdir(place))
    note("pids", lambda: sorted(int(p) for p in os.listdir("/proc") if p.isdigit()))
    note("pid", os.getpid)
    note("init memory", lambda: read("/proc/1/mem"))
    note("init environment", lambda: read("/proc/1/environ"))
    note("kill outside", lambda: os.kill(pid_outside, 0))
    note("inet", lambda: connect(socket.AF_INET, ("1.1.1.1", 53)))
    note("loopback", lambda: connect(socket.AF_INET, ("127.0.0.1", 22)))
    note("interfaces", lambda: read("/proc/net/dev", 4000))
    note("abstract", lambda: connect(socket.AF_UNIX, "\0roofmark-test"))
    note("refused", refused)
    note("writable", writable)
    note("fds", descriptors)
    note("environment", lambda: dict(os.environ))
    note("status", lambda: dict(line.split(":\t", 1) for line in read("/proc/self/status", 8000).splitlines()))
    note("limits", lambda: {n: resource.getrlimit(getattr(resource, n))[1] for n in dir(resource) if "RLIMIT_" in n})
    note("scratch", lambda: sorted(name for _, _, files in os.walk("..") for name in files))
    note("chmod outside", lambda: os.chmod(os.path.dirname(torch.__file__), 0o755))
    note("argv", lambda: sys.argv)
    for place in ("../left", os.path.join(tempfile.gettempdir(), "left"), "/dev/shm/left"):
        note(f"leave {place}", lambda place=place: open(place, "w").close())
    print("FOUND " + json.dumps(FOUND), flush=True)


class Model(torch.nn.Module):
    def __init__(self, eps):
        super().__init__()
        look_around(PLACES, PID_OUTSIDE)  # noqa: F821 - both are put before this text

    def forward(self, x, weight):
        return x
