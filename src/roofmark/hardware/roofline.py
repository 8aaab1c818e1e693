"""The roofline itself: the least time that a device needs for a piece of work, and what bounds it."""

from __future__ import annotations

from enum import StrEnum

from roofmark.errors import DeviceError
from roofmark.records import Roofline, Work

MEMORY_BOUND_BELOW_FLOP_PER_BYTE = 10.0

# Formats of one width run on one unit at one rate; a catalogue entry gives the rate once.
ALIASES = {"fp8_e4m3": "fp8", "fp8_e5m2": "fp8", "fp4_e2m1": "fp4"}


class Regime(StrEnum):
    """What bounds a piece of work by its intensity alone, on any device."""

    MEMORY = "memory"
    COMPUTE = "compute"
    INDEX = "index"


def peak_flops(roofline: Roofline, dtype: str) -> float:
    """FLOP/s of one dtype. DeviceError where the roofline has none: a guess would make a wrong bound."""
    for name in (dtype, ALIASES.get(dtype, dtype)):
        if name in roofline.peak_flops:
            return roofline.peak_flops[name]
    raise DeviceError(
        f"{roofline.device} has no peak for {dtype} (it has {', '.join(sorted(roofline.peak_flops))})",
        hint="add the dtype to the device's TOML, with `via` where it runs on a wider unit",
    )


def t_sol_us(work: Work, roofline: Roofline) -> float:
    """The speed-of-light time in µs: the larger of the time to compute and the time to move the bytes."""
    compute_s = sum(flops / peak_flops(roofline, dtype) for dtype, flops in work.flops.items() if flops)
    return max(compute_s, work.bytes_total / roofline.bandwidth_bytes_per_s) * 1e6


def ridge(roofline: Roofline, dtype: str) -> float:
    """The intensity in FLOP/byte above which this device computes longer than it moves data."""
    return peak_flops(roofline, dtype) / roofline.bandwidth_bytes_per_s


def regime(intensity: float) -> Regime:
    """The regime of an intensity in FLOP/byte; 0 means that the work has no FLOPs at all."""
    if intensity <= 0:
        return Regime.INDEX
    return Regime.MEMORY if intensity < MEMORY_BOUND_BELOW_FLOP_PER_BYTE else Regime.COMPUTE
