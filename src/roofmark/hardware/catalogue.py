"""The records of the catalogue, and the checks that keep a slip in a data sheet out of a score."""

from __future__ import annotations

import tomllib
from datetime import date
from pathlib import Path
from typing import Any, Literal

from pydantic import Field, ValidationError

from roofmark.errors import DeviceError
from roofmark.records import Record, Roofline

# Unit -> (what it measures, factor to FLOP/s, bytes/s, bytes, Hz or a plain number).
UNITS = {
    "TFLOP/s": ("rate", 1e12),
    "TOP/s": ("rate", 1e12),
    "PFLOP/s": ("rate", 1e15),
    "GB/s": ("bandwidth", 1e9),
    "TB/s": ("bandwidth", 1e12),
    "KiB": ("size", 2.0**10),
    "MiB": ("size", 2.0**20),
    "GiB": ("size", 2.0**30),
    "GB": ("size", 1e9),
    "MHz": ("clock", 1e6),
    "count": ("number", 1.0),
}
MEASURES = {
    "bandwidth": "bandwidth",
    "memory": "size",
    "last_level_cache": "size",
    "l2_cache": "size",
    "shared_memory_per_multiprocessor": "size",
    "registers_per_multiprocessor": "size",
    "multiprocessors": "number",
    "boost_clock": "clock",
    "memory_clock": "clock",
}
DTYPES = ("fp64", "fp32", "tf32", "bf16", "fp16", "fp8", "int8", "fp4")

# Peak = multiprocessors x FLOP a clock x clock, as far as vendors round.
TOLERANCE = 0.03
# Dense bf16 FLOP a clock and multiprocessor at most. A sparse figure is twice as much.
DENSE_BF16_PER_CLOCK = {
    "sm_80": 2048,
    "sm_89": 1024,
    "sm_90a": 4096,
    "sm_100a": 8192,
    "gfx942": 2048,
    "gfx950": 4096,
}
# (wider, narrower, least, greatest) ratio of rates on the units of these targets.
LADDER = (
    ("tf32", "bf16", 2.0, 2.0),
    ("bf16", "fp8", 2.0, 2.0),
    ("bf16", "int8", 1.0, 2.0),
    ("fp8", "fp4", 1.0, 2.0),
)
EQUAL = ("bf16", "fp16")
# bf16 FLOP per byte of memory traffic; outside it a power of ten or a unit is wrong.
PLAUSIBLE_RIDGE_FLOP_PER_BYTE = (20.0, 600.0)
# A peak is stated at a clock near the boost clock; half or twice of it hides a factor of two.
PLAUSIBLE_CLOCK_SHARE = (0.7, 1.02)


class Source(Record):
    """Where figures come from, and when they were compared with it.

    `vendor`: a document of the vendor states them; `paper`: a paper does; `driver`: the driver reports them
    on such a device; `secondary`: others state them, and no document of the vendor was found.
    """

    title: str
    where: str
    url: str = ""
    checked: date
    confidence: Literal["vendor", "paper", "driver", "secondary"]


class Figure(Record):
    """A number with its unit and the key of its source in `sources`."""

    value: float = Field(gt=0, allow_inf_nan=False)
    unit: str
    source: str
    note: str = ""

    @property
    def si(self) -> float:
        """The value in FLOP/s, bytes/s, bytes, Hz or as a plain number."""
        return self.value * UNITS[self.unit][1]


class Peak(Record):
    """The dense peak of one dtype: its own figure, or `via` the fastest wider type that holds it exactly.

    `flop_per_clock` (of one multiprocessor) and `clock_mhz` check the figure; where no source gives them,
    `unchecked` says why.
    """

    value: float | None = Field(None, gt=0, allow_inf_nan=False)
    unit: str | None = None
    source: str | None = None
    via: str | None = None
    flop_per_clock: int | None = None
    clock_mhz: float | None = None
    unchecked: str = ""
    note: str = ""


class Gpu(Record):
    """The limits of one accelerator. `devices` are the driver's names for it, `target` the compilers'."""

    name: str
    title: str
    vendor: Literal["NVIDIA", "AMD", "unnamed"]
    target: str
    devices: tuple[str, ...] = ()
    note: str = ""
    sources: dict[str, Source]
    figures: dict[str, Figure]
    peak: dict[str, Peak]
    measured: dict[str, Any] | None = None

    def peak_flops(self, dtype: str) -> float:
        """Dense FLOP/s of a dtype, following `via`."""
        peak = self.peak[dtype]
        if peak.via is not None:
            return self.peak_flops(peak.via)
        assert peak.value is not None
        assert peak.unit is not None
        return peak.value * UNITS[peak.unit][1]

    @property
    def roofline(self) -> Roofline:
        """The peaks of every dtype and the bandwidth: what a score is held against."""
        return Roofline(
            device=self.name,
            peak_flops={dtype: self.peak_flops(dtype) for dtype in self.peak},
            bandwidth_bytes_per_s=self.figures["bandwidth"].si,
        )


def read(path: Path) -> Gpu:
    """The checked accelerator of one TOML file. DeviceError, in one line, for whatever is wrong with it."""
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise DeviceError(f"{path.name} can't be read: {error}") from error
    return parse(text, path.name)


def parse(text: str, where: str) -> Gpu:
    """The checked accelerator of a TOML text; `where` names it in the DeviceError."""
    try:
        gpu = Gpu.model_validate(tomllib.loads(text))
    except tomllib.TOMLDecodeError as error:
        raise DeviceError(f"{where} is not TOML: {error}") from error
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        place = ".".join(map(str, first["loc"]))
        raise DeviceError(f"{where}: {place}: {first['msg']}") from error
    for problem in problems(gpu):
        raise DeviceError(f"{where}: {problem}", hint="figures are dense and as the source prints them")
    return gpu


def problems(gpu: Gpu) -> list[str]:
    """What is wrong with an accelerator's figures, empty if nothing is."""
    return [*_figure_problems(gpu), *_form_problems(gpu)] or [*_clock_problems(gpu), *_ratio_problems(gpu)]


def _figure_problems(gpu: Gpu) -> list[str]:
    found = [f"figures.{name} is missing" for name in ("bandwidth",) if name not in gpu.figures]
    for name, figure in gpu.figures.items():
        measure = MEASURES.get(name)
        if measure is None:
            found.append(f"figures.{name} is unknown (known: {', '.join(MEASURES)})")
        elif UNITS.get(figure.unit, ("", 0))[0] != measure:
            found.append(f"figures.{name}: {figure.unit!r} is no unit of {measure}")
        if figure.source not in gpu.sources:
            found.append(f"figures.{name}: source {figure.source!r} is not in sources")
    return found


def _form_problems(gpu: Gpu) -> list[str]:
    found = [] if "bf16" in gpu.peak else ["peak.bf16 is missing"]
    for dtype, peak in gpu.peak.items():
        if dtype not in DTYPES:
            found.append(f"peak.{dtype} is unknown (known: {', '.join(DTYPES)})")
        if peak.via is not None:
            if peak.value is not None or peak.via not in gpu.peak or gpu.peak[peak.via].via is not None:
                found.append(f"peak.{dtype}: via {peak.via!r} must name a peak with a value, and stand alone")
            continue
        if peak.value is None or UNITS.get(peak.unit or "", ("", 0))[0] != "rate":
            found.append(f"peak.{dtype} needs a value with a unit of rate, not {peak.unit!r}")
        if peak.source not in gpu.sources:
            found.append(f"peak.{dtype}: source {peak.source!r} is not in sources")
        checkable = peak.flop_per_clock is not None and peak.clock_mhz is not None
        if checkable == bool(peak.unchecked):
            found.append(f"peak.{dtype} needs flop_per_clock and clock_mhz, or `unchecked` with the reason")
        if checkable and not {"multiprocessors", "boost_clock"} <= gpu.figures.keys():
            found.append(f"peak.{dtype} can't be checked without multiprocessors and boost_clock")
    return found


def _clock_problems(gpu: Gpu) -> list[str]:
    found = []
    ceiling = DENSE_BF16_PER_CLOCK.get(gpu.target)
    if ceiling is None:
        return [f"target {gpu.target!r} is unknown (known: {', '.join(DENSE_BF16_PER_CLOCK)})"]
    for dtype, peak in gpu.peak.items():
        if peak.flop_per_clock is None or peak.clock_mhz is None:
            continue
        expected = gpu.figures["multiprocessors"].si * peak.flop_per_clock * peak.clock_mhz * 1e6
        ratio = gpu.peak_flops(dtype) / expected
        if abs(ratio - 1) > TOLERANCE:
            what = "a figure with sparsity?" if 1.9 < ratio < 2.1 else "a wrong unit, clock or count?"
            found.append(f"peak.{dtype} is {ratio:.3g} times multiprocessors x FLOP a clock x clock: {what}")
        share = peak.clock_mhz * 1e6 / gpu.figures["boost_clock"].si
        if not PLAUSIBLE_CLOCK_SHARE[0] <= share <= PLAUSIBLE_CLOCK_SHARE[1]:
            found.append(f"peak.{dtype}: clock_mhz is {share:.2f} of the boost clock")
        if dtype in EQUAL and peak.flop_per_clock > ceiling:
            found.append(f"peak.{dtype}: {gpu.target} does {ceiling} dense FLOP a clock: a figure with sparsity?")
    return found


def _ratio_problems(gpu: Gpu) -> list[str]:
    found = []
    rate = {dtype: gpu.peak_flops(dtype) for dtype in gpu.peak}
    own = {dtype for dtype, peak in gpu.peak.items() if peak.via is None}
    for wide, narrow, least, greatest in LADDER:
        if {wide, narrow} <= own:
            ratio = rate[narrow] / rate[wide]
            if not least * (1 - TOLERANCE) <= ratio <= greatest * (1 + TOLERANCE):
                wanted = f"{least:g}" if least == greatest else f"{least:g} to {greatest:g}"
                found.append(f"peak.{narrow} is {ratio:.3g} times peak.{wide}, not {wanted}: one has sparsity?")
    if all(dtype in rate for dtype in EQUAL) and rate["bf16"] != rate["fp16"]:
        found.append("peak.bf16 and peak.fp16 differ: one has sparsity, or the wrong unit?")
    ridge = rate["bf16"] / gpu.figures["bandwidth"].si
    low, high = PLAUSIBLE_RIDGE_FLOP_PER_BYTE
    if not low <= ridge <= high:
        found.append(f"bf16 over bandwidth is {ridge:.3g} FLOP/byte, not {low:g} to {high:g}: a wrong unit?")
    return found
