"""The CPU's limits, measured on the spot, and the larger of several calibrations."""

from __future__ import annotations

import os
import platform
import re
from collections.abc import Callable, Iterable, Mapping
from datetime import UTC, datetime
from pathlib import Path
from statistics import median
from typing import Any

from roofmark.errors import DeviceError
from roofmark.hardware import native
from roofmark.records import Calibration, Roofline

ROUNDS = 3
COMPUTE_MS = 12.0
BANDWIDTH_MS = 25.0
ARRAYS_OVER_LLC = 2  # twice suffices, since all sweeps share one cursor
MIN_ARRAY_BYTES = 256 << 20
MAX_ARRAY_BYTES = 2 << 30
UNKNOWN_LLC_BYTES = 64 << 20

# Which units may do a dtype's arithmetic: its own, or the fastest that holds its values exactly.
UNITS = {
    "fp64": ("fp64",),
    "fp32": ("fp32",),
    "tf32": ("fp32",),
    "bf16": ("bf16", "fp32"),
    "fp16": ("fp16", "fp32"),
    "fp8": ("bf16", "fp16", "fp32"),
    "fp4": ("int8", "bf16", "fp16", "fp32"),
    "int8": ("int8", "bf16", "fp32"),
    "int32": ("int32",),
}

# A unit that the CPU has and the compiler doesn't know still bounds what a candidate can do (torch brings
# its own code generator). Flag -> (our kernel, dtype, operations a cycle and core at most).
X86_UNITS = {
    "avx512_bf16": ("avx512_dpbf16", "bf16", 128),
    "avx512_fp16": ("avx512_fp16_fma", "fp16", 128),
    "avx512_vnni": ("int8_vnni", "int8", 256),
    "avx_vnni": ("int8_vnni", "int8", 128),
    "amx_bf16": ("amx_bf16", "bf16", 2048),
    "amx_fp16": ("amx_fp16", "fp16", 2048),
    "amx_int8": ("amx_int8", "int8", 4096),
}
# Arm: operations per instruction over those of a fp32 multiply-add of the same width.
ARM_UNITS = {
    "asimdhp": ("arm_fp16", "fp16", 2),
    "bf16": ("arm_bfmmla", "bf16", 4),
    "asimddp": ("arm_dot", "int8", 4),
    "i8mm": ("arm_mmla", "int8", 8),
}


def calibrate_cpu(
    *, environ: Mapping[str, str] = os.environ, now: Callable[[], datetime] = lambda: datetime.now(UTC)
) -> Calibration:
    """The CPU's roofline as measured now over all cores that this process may use, in about a second.

    Peaks are register-only loops, bandwidth the best of read, write, copy and triad sweeps, in the best
    window of 2 ms, in FLOP/s and bytes/s. DeviceError without a C compiler or where the program fails.
    """
    taken_at = now()
    llc = llc_bytes()
    model, flags = cpu_model_and_flags()
    program = native.build(environ, flags)
    array_bytes = _array_bytes(llc)
    stolen_s = stolen_by_host_s()
    printed = native.run(program, array_bytes, ROUNDS, COMPUTE_MS, BANDWIDTH_MS)
    machine = {
        "cpu": model,
        "llc_bytes": llc,
        "array_bytes": array_bytes,
        "rounds": ROUNDS,
        "stolen_by_host_s": round(stolen_by_host_s() - stolen_s, 2),
    }
    roofline, details = _limits(printed, flags.split())
    return Calibration(taken_at=taken_at.isoformat(timespec="seconds"), roofline=roofline, details=machine | details)


def _limits(printed: Mapping[str, Any], flags: Iterable[str]) -> tuple[Roofline, dict[str, Any]]:
    """The roofline of what the program printed on a CPU with these flags, and how each limit came about."""
    kernels = {k["name"]: k for k in printed["compute"] if k["rates"]}
    sweeps = {k["name"]: k for k in printed["bandwidth"]}
    printed_kernels = [*kernels.values(), *sweeps.values()]
    compiled = {k["name"] for k in printed["compute"]}
    fp32 = max(kernels["vector_fp32"]["rates"])
    kernels |= _units_by_ratio(flags, compiled, fp32, printed["vector_bytes"])
    peaks, units = _peaks(kernels)
    best_sweep = max(sweeps, key=lambda name: max(sweeps[name]["rates"]))
    details = {
        "cores": printed["cores"],
        "compiler": printed["compiler"],
        "vector_bytes": printed["vector_bytes"],
        "unit": units | {"bytes": best_sweep},
        "kernels": {name: _figures(kernel) for name, kernel in {**kernels, **sweeps}.items()},
        "disturbed": [kernel["name"] for kernel in printed_kernels if not kernel["undisturbed"]],
        "seconds": {part: printed[f"{part}_s"] for part in ("touch", "measure")},
    }
    bandwidth = max(sweeps[best_sweep]["rates"])
    return Roofline(device="cpu", peak_flops=peaks, bandwidth_bytes_per_s=bandwidth), details


def larger(calibrations: Iterable[Calibration]) -> Roofline:
    """The roofline whose every limit is the largest of the calibrations, all of one device."""
    rooflines = [calibration.roofline for calibration in calibrations]
    devices = {roofline.device for roofline in rooflines}
    if len(devices) != 1:
        raise DeviceError(f"calibrations of one device are needed, not of {sorted(devices) or 'none'}")
    dtypes = {dtype for roofline in rooflines for dtype in roofline.peak_flops}
    return Roofline(
        device=devices.pop(),
        peak_flops={d: max(r.peak_flops.get(d, 0.0) for r in rooflines) for d in sorted(dtypes)},
        bandwidth_bytes_per_s=max(roofline.bandwidth_bytes_per_s for roofline in rooflines),
    )


def llc_bytes(cpus: Path = Path("/sys/devices/system/cpu")) -> int:
    """Bytes of last-level cache that this process's cores reach, all instances; 64 MiB where none is told."""
    cores = os.sched_getaffinity(0) if hasattr(os, "sched_getaffinity") else range(os.cpu_count() or 1)
    levels: dict[int, dict[str, int]] = {}
    for core in cores:
        for index in (cpus / f"cpu{core}" / "cache").glob("index*"):
            try:
                level = int((index / "level").read_text())
                sharers = (index / "shared_cpu_list").read_text().strip()
                levels.setdefault(level, {})[sharers] = _size_bytes((index / "size").read_text().strip())
            except (OSError, ValueError):
                continue
    return sum(levels[max(levels)].values()) if levels else UNKNOWN_LLC_BYTES


def cpu_model_and_flags(cpuinfo: Path = Path("/proc/cpuinfo")) -> tuple[str, str]:
    """The CPU's name and its feature flags, separated by blanks; flags are empty where none are told."""
    try:
        text = cpuinfo.read_text()
    except OSError:
        text = ""
    found = dict(re.findall(r"(?m)^(model name|flags|Features)\s*:\s*(.*)$", text))
    model = found.get("model name") or platform.processor() or platform.machine()
    return model, found.get("flags") or found.get("Features") or ""


def stolen_by_host_s(stat: Path = Path("/proc/stat")) -> float:
    """Seconds of all cores that a hypervisor gave to others since the start; 0 where none are told."""
    try:
        return int(stat.read_text().split()[8]) / os.sysconf("SC_CLK_TCK")
    except (OSError, ValueError, IndexError):
        return 0.0


def _size_bytes(text: str) -> int:
    units = {"K": 1 << 10, "M": 1 << 20, "G": 1 << 30}
    return int(text[:-1]) * units[text[-1]] if text[-1:] in units else int(text)


def _array_bytes(llc: int) -> int:
    """Several times the last-level cache, within the memory that can be had."""
    wanted = min(max(ARRAYS_OVER_LLC * llc, MIN_ARRAY_BYTES), MAX_ARRAY_BYTES)
    return min(wanted, available_bytes() // 4)


def available_bytes(meminfo: Path = Path("/proc/meminfo"), cgroup: Path = Path("/sys/fs/cgroup")) -> int:
    """Bytes that can be allocated now: what the system says, within the cgroup's limit."""
    available = MAX_ARRAY_BYTES * 4
    try:
        if match := re.search(r"MemAvailable:\s*(\d+) kB", meminfo.read_text()):
            available = int(match[1]) << 10
        limit = int((cgroup / "memory.max").read_text())
        available = min(available, limit - int((cgroup / "memory.current").read_text()))
    except (OSError, ValueError):  # not Linux, or no limit ("max")
        pass
    return max(available, 0)


def _units_by_ratio(flags: Iterable[str], compiled: set[str], fp32: float, width: int) -> dict[str, Any]:
    """Kernels for units that the CPU has and the program doesn't, at their greatest rate over fp32's."""
    found: dict[str, Any] = {}
    arm = platform.machine() in ("aarch64", "arm64")
    for flag in flags:
        name, dtype, rate = (ARM_UNITS if arm else X86_UNITS).get(flag, ("", "", 0))
        if name and name not in compiled:
            # Two fp32 multiply-adds a cycle on vectors of `width` bytes are `width` FLOP: x86's most.
            ratio = rate if arm else rate / width
            found[name] = {"name": name, "dtype": dtype, "rates": [fp32 * ratio], "by_ratio": ratio}
    return found


def _peaks(kernels: Mapping[str, Any]) -> tuple[dict[str, float], dict[str, str]]:
    """FLOP/s per dtype, and the kernel that each comes from."""
    peaks, units = {}, {}
    for dtype, unit_dtypes in UNITS.items():
        usable = [kernel for kernel in kernels.values() if kernel["dtype"] in unit_dtypes]
        best = max(usable, key=lambda kernel: max(kernel["rates"]))
        peaks[dtype], units[dtype] = max(best["rates"]), best["name"]
    return peaks, units


def _figures(kernel: Mapping[str, Any]) -> dict[str, Any]:
    rates = kernel["rates"]
    extra = {"over_fp32": kernel["by_ratio"]} if "by_ratio" in kernel else {}
    return {"dtype": kernel["dtype"], "best": max(rates), "median": median(rates), **extra}
