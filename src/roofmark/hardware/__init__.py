"""Where kernels run: the catalogue of accelerators, the roofline, and calibrations of the machine at hand.

`load(name).roofline` is what a score on that accelerator is held against.
"""

from __future__ import annotations

from importlib import resources
from pathlib import Path

from roofmark.errors import DeviceError
from roofmark.hardware.catalogue import Figure, Gpu, Peak, Source, read
from roofmark.hardware.roofline import Regime, regime, ridge, t_sol_us

__all__ = [
    "Figure",
    "Gpu",
    "Peak",
    "Regime",
    "Source",
    "load",
    "match",
    "names",
    "regime",
    "ridge",
    "t_sol_us",
]


def names() -> tuple[str, ...]:
    """The names of all accelerators in the catalogue, sorted."""
    return tuple(sorted(path.stem for path in _folder().glob("*.toml")))


def load(name: str) -> Gpu:
    """The accelerator of that name, every figure checked. DeviceError if there is none or it is malformed."""
    if name not in names():
        raise DeviceError(f"no accelerator {name!r} in the catalogue", hint=f"it has {', '.join(names())}")
    gpu = read(_folder() / f"{name}.toml")
    if gpu.name != name:
        raise DeviceError(f"{name}.toml: name is {gpu.name!r}")
    return gpu


def match(device_name: str, memory_bytes: int | None = None) -> str | None:
    """The catalogue's name for a device as the driver calls it, None for one that it doesn't hold.

    Names are compared whole: `NVIDIA H100 PCIe` is no `NVIDIA H100 80GB HBM3`. With `memory_bytes`, a device
    whose memory is more than 10 % off (another variant under one name, a MIG slice) is None too.
    """
    wanted = " ".join(device_name.split()).casefold()
    for name in names():
        gpu = load(name)
        if wanted not in (device.casefold() for device in gpu.devices):
            continue
        memory = gpu.figures.get("memory")
        if memory_bytes is None or memory is None or abs(memory_bytes / memory.si - 1) <= 0.1:
            return name
    return None


def _folder() -> Path:
    return Path(str(resources.files("roofmark.hardware"))) / "gpus"
