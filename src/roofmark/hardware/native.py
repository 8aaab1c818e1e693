"""The C calibration program: found sources, a compiler, a cached binary, and what it printed."""

from __future__ import annotations

import hashlib
import json
import os
import platform
import shlex
import shutil
import subprocess
import tempfile
from collections.abc import Mapping
from importlib import resources
from pathlib import Path
from typing import Any

from roofmark.errors import DeviceError

SOURCES = ("harness.h", "calibrate.c", "compute.c", "bandwidth.c")
FLAGS = ("-O3", "-std=gnu11", "-ffp-contract=fast", "-pthread")
TIMEOUT_S = 120
COMPILER_TIMEOUT_S = 60

# On x86 a build for a lesser CPU would give a peak that a candidate beats: native or nothing.
NATIVE_FLAGS = {"x86_64": (("-march=native",),)}
OTHER_NATIVE_FLAGS: tuple[tuple[str, ...], ...] = (("-mcpu=native",), ("-march=native",), ())


def find_compiler(environ: Mapping[str, str]) -> list[str]:
    """The C compiler's command: `CC` where set, else cc, gcc or clang. DeviceError where there is none."""
    wanted = [shlex.split(environ["CC"])] if environ.get("CC") else [["cc"], ["gcc"], ["clang"]]
    for name, *arguments in wanted:
        if path := shutil.which(name, path=environ.get("PATH")):
            return [path, *arguments]
    tried = ", ".join(" ".join(command) for command in wanted)
    raise DeviceError(
        f"no C compiler found ({tried}), and the CPU's limits are measured by a C program",
        hint="install gcc or clang (Debian: apt-get install gcc libc6-dev), or set CC",
    )


def build(environ: Mapping[str, str], cpu_flags: str) -> Path:
    """The path of the compiled program, from the user's cache where it was built before."""
    compiler = find_compiler(environ)
    folder = resources.files("roofmark.hardware") / "csrc"
    sources = {name: (folder / name).read_bytes() for name in SOURCES}
    key = hashlib.sha256()
    for part in (_version(compiler), platform.machine(), cpu_flags, " ".join(FLAGS)):
        key.update(part.encode() + b"\0")
    for name in SOURCES:
        key.update(sources[name])
    target = _cache_folder(environ) / f"calibrate-{key.hexdigest()[:24]}"
    if not os.access(target, os.X_OK):
        _compile(compiler, sources, target)
    return target


def run(program: Path, *arguments: float) -> dict[str, Any]:
    """What the program printed: `compute` and `bandwidth` lists of kernels, their rates, and its times."""
    command = [str(program), *map(str, arguments)]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT_S, check=False)
        if done.returncode == 0:
            result: dict[str, Any] = json.loads(done.stdout)
            return result
        reason = f"exit status {done.returncode} {done.stderr.strip()}"
    except (OSError, ValueError, subprocess.TimeoutExpired) as error:
        reason = str(error)
    raise DeviceError(
        f"the CPU calibration {program} failed: {reason.strip()}",
        hint="it needs memory for its arrays, and a cache folder (XDG_CACHE_HOME) that programs may run in",
    )


def _version(compiler: list[str]) -> str:
    return " ".join(compiler) + _run_compiler([*compiler, "--version"]).stdout


def _run_compiler(command: list[str], folder: Path | None = None) -> subprocess.CompletedProcess[str]:
    """What the compiler said. DeviceError where it can't be started or does not end."""
    name = shlex.join(command[:1])
    try:
        return subprocess.run(
            command, cwd=folder, stdin=subprocess.DEVNULL, capture_output=True, text=True, errors="replace",
            timeout=COMPILER_TIMEOUT_S, check=False,
        )  # fmt: skip
    except OSError as error:
        reason = f"can't be started: {error.strerror}"
    except subprocess.TimeoutExpired:
        reason = f"did not end within {COMPILER_TIMEOUT_S:g} s"
    raise DeviceError(f"the C compiler {name} {reason}", hint="name another one in CC")


def _cache_folder(environ: Mapping[str, str]) -> Path:
    """The user's cache, or a folder of the user's own under the temporary one."""
    base = environ.get("XDG_CACHE_HOME") or os.path.join(environ.get("HOME") or "~", ".cache")
    for folder in (
        Path(base).expanduser() / "roofmark",
        Path(tempfile.gettempdir()) / f"roofmark-{os.getuid()}",
    ):
        try:
            folder.mkdir(parents=True, exist_ok=True, mode=0o700)
            if os.access(folder, os.W_OK) and folder.stat().st_uid == os.getuid():
                return folder
        except OSError:
            continue
    raise DeviceError("no folder to build the CPU calibration in", hint="set XDG_CACHE_HOME to a writable one")


def _compile(compiler: list[str], sources: Mapping[str, bytes], target: Path) -> None:
    """Leaves the program at `target`, whole or not at all."""
    with tempfile.TemporaryDirectory(dir=target.parent, prefix="build-") as name:
        folder = Path(name)
        for source, content in sources.items():
            (folder / source).write_bytes(content)
        files = [source for source in sources if source.endswith(".c")]
        message = ""
        for native in NATIVE_FLAGS.get(platform.machine(), OTHER_NATIVE_FLAGS):
            command = [*compiler, *FLAGS, *native, *files, "-o", "program"]
            done = _run_compiler(command, folder)
            if done.returncode == 0:
                os.replace(folder / "program", target)
                return
            lines = done.stderr.splitlines() or ["no message"]
            message = next((line for line in lines if "error" in line), lines[-1])
        raise DeviceError(
            f"{' '.join(compiler)} can't compile the CPU calibration: {message}",
            hint="a newer gcc (12 or later) or clang knows this CPU; name it in CC",
        )
