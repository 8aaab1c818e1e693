"""The ceilings of a CUDA device as measured now. They stand beside the vendor's peaks and enter no score."""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from statistics import median
from typing import Any

from roofmark.errors import DeviceError
from roofmark.records import Calibration, Roofline

MATRIX = 8192
REPEATS = 20
WARM_UPS = 3
BUFFER_BYTES = 4 << 30
# About 3 ms: the host enqueues all calls meanwhile.
HOLD_CYCLES = 6_000_000
LAUNCHES = 200


def calibrate_cuda(device: int = 0, *, now: Callable[[], datetime] = lambda: datetime.now(UTC)) -> Calibration:
    """The matrix rates, bandwidths and launch times of a CUDA device, measured in some 10 s.

    The roofline holds the best of the repeats in FLOP/s and bytes/s, timed by events behind a busy stream;
    `details` hold best and median of each, launch times in µs, and clocks, power and throttle reasons before
    and after. DeviceError without a CUDA device. A dtype that can't be multiplied is left out and named.
    """
    torch = _torch()
    taken_at = now()
    with torch.cuda.device(device):
        before = device_state(device)
        rates, missing = _matrix_rates(torch)
        bandwidths = _bandwidths(torch)
        details = {
            "device": torch.cuda.get_device_name(device),
            "torch": str(torch.__version__),
            "cuda": str(torch.version.cuda),
            "matrix": MATRIX,
            "repeats": REPEATS,
            "not_measured": missing,
            "rates_tflops": {name: _scaled(figure, 1e-12) for name, figure in rates.items()},
            "bandwidth_gb_per_s": {name: _scaled(figure, 1e-9) for name, figure in bandwidths.items()},
            "launch_us": _launch_us(torch),
            "state_before": before,
            "state_after": device_state(device),
        }
    roofline = Roofline(
        device=details["device"],
        peak_flops={name: figure["best"] for name, figure in rates.items()},
        bandwidth_bytes_per_s=max(figure["best"] for figure in bandwidths.values()),
    )
    return Calibration(taken_at=taken_at.isoformat(timespec="seconds"), roofline=roofline, details=details)


def device_state(device: int = 0) -> dict[str, Any]:
    """Clocks (MHz), temperature (°C), power (W) and throttle reasons; empty without nvidia-ml-py."""
    try:
        import pynvml
    except ImportError:
        return {}
    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError:
        return {}
    try:
        handle = _handle(pynvml, device)
        readings = {name: _try(pynvml, read, handle) for name, read in _READINGS.items()}
        return {name: value for name, value in readings.items() if value is not None}
    finally:
        pynvml.nvmlShutdown()


# Each of these may be unsupported on a device: it is then left out.
_READINGS: dict[str, Callable[[Any, Any], Any]] = {
    "name": lambda n, h: _text(n.nvmlDeviceGetName(h)),
    "driver": lambda n, h: _text(n.nvmlSystemGetDriverVersion()),
    "sm_clock_mhz": lambda n, h: n.nvmlDeviceGetClockInfo(h, n.NVML_CLOCK_SM),
    "memory_clock_mhz": lambda n, h: n.nvmlDeviceGetClockInfo(h, n.NVML_CLOCK_MEM),
    "sm_clock_max_mhz": lambda n, h: n.nvmlDeviceGetMaxClockInfo(h, n.NVML_CLOCK_SM),
    "temperature_c": lambda n, h: n.nvmlDeviceGetTemperature(h, n.NVML_TEMPERATURE_GPU),
    "power_w": lambda n, h: n.nvmlDeviceGetPowerUsage(h) / 1000,
    "power_limit_w": lambda n, h: n.nvmlDeviceGetEnforcedPowerLimit(h) / 1000,
    "throttle_reasons": lambda n, h: throttle_reasons(n.nvmlDeviceGetCurrentClocksThrottleReasons(h)),
}

# Bits of NVML's clocks event reasons.
_REASONS = {
    0x1: "idle",
    0x2: "applications_clocks",
    0x4: "software_power_cap",
    0x8: "hardware_slowdown",
    0x10: "sync_boost",
    0x20: "software_thermal",
    0x40: "hardware_thermal",
    0x80: "power_brake",
    0x100: "display_clock",
}


def throttle_reasons(mask: int) -> list[str]:
    """The names of the set bits of NVML's throttle reasons; an unknown bit is given in hexadecimal."""
    return [_REASONS.get(1 << bit, hex(1 << bit)) for bit in range(mask.bit_length()) if mask >> bit & 1]


def _torch() -> Any:
    import torch

    if not torch.cuda.is_available() or torch.version.cuda is None:
        raise DeviceError("no CUDA device is visible to torch", hint="run where `nvidia-smi` lists a GPU")
    return torch


def _handle(pynvml: Any, device: int) -> Any:
    """NVML's handle of torch's device, by UUID: `CUDA_VISIBLE_DEVICES` renumbers torch's devices alone."""
    import torch

    uuid = f"GPU-{torch.cuda.get_device_properties(device).uuid}"
    with contextlib.suppress(pynvml.NVMLError):
        return pynvml.nvmlDeviceGetHandleByUUID(uuid)
    with contextlib.suppress(pynvml.NVMLError):
        return pynvml.nvmlDeviceGetHandleByUUID(uuid.encode())
    return pynvml.nvmlDeviceGetHandleByIndex(device)


def _try(pynvml: Any, read: Callable[[Any, Any], Any], handle: Any) -> Any:
    try:
        return read(pynvml, handle)
    except (pynvml.NVMLError, AttributeError):
        return None


def _text(value: Any) -> str:
    return value.decode() if isinstance(value, bytes) else str(value)


def _scaled(figure: dict[str, float], factor: float) -> dict[str, float]:
    return {name: value * factor for name, value in figure.items()}


def _times_s(torch: Any, call: Callable[[], Any], repeats: int = REPEATS) -> list[float]:
    """Seconds of each call between two events, the stream held busy until all of them are enqueued."""
    for _ in range(WARM_UPS):
        call()
    torch.cuda.synchronize()
    marks = [torch.cuda.Event(enable_timing=True) for _ in range(repeats + 1)]
    torch.cuda._sleep(HOLD_CYCLES)
    marks[0].record()
    for mark in marks[1:]:
        call()
        mark.record()
    torch.cuda.synchronize()
    return [first.elapsed_time(second) * 1e-3 for first, second in itertools.pairwise(marks)]


def _rate(times_s: list[float], work: float) -> dict[str, float]:
    """Best and median rate; work over time."""
    return {"best": work / min(times_s), "median": work / median(times_s)}


def _matrix_rates(torch: Any) -> tuple[dict[str, dict[str, float]], list[str]]:
    """Best and median FLOP/s of a matrix product of random data per dtype, and the dtypes that failed."""
    rates: dict[str, dict[str, float]] = {}
    missing: list[str] = []
    for name, prepare in _PRODUCTS.items():
        try:
            with _tf32(torch):
                rates[name] = _rate(_times_s(torch, prepare(torch)), 2.0 * MATRIX**3)
        except (RuntimeError, AttributeError, NotImplementedError) as error:
            reason = (str(error).splitlines() or [type(error).__name__])[0]
            missing.append(f"{name}: {reason[:200]}")
        torch.cuda.empty_cache()
    return rates, missing


@contextlib.contextmanager
def _tf32(torch: Any) -> Iterator[None]:
    """Lets fp32 products run on tf32 units, and puts the setting back."""
    before = torch.backends.cuda.matmul.allow_tf32
    torch.backends.cuda.matmul.allow_tf32 = True
    try:
        yield
    finally:
        torch.backends.cuda.matmul.allow_tf32 = before


def _plain(dtype: str) -> Callable[[Any], Callable[[], Any]]:
    def prepare(torch: Any) -> Callable[[], Any]:
        a, b = (torch.randn(MATRIX, MATRIX, device="cuda").to(getattr(torch, dtype)) for _ in range(2))
        out = torch.empty_like(a)
        return lambda: torch.mm(a, b, out=out)

    return prepare


def _fp8(torch: Any) -> Callable[[], Any]:
    a, b = (torch.randn(MATRIX, MATRIX, device="cuda").to(torch.float8_e4m3fn) for _ in range(2))
    one = torch.ones((), device="cuda")
    return lambda: torch._scaled_mm(a, b.t(), scale_a=one, scale_b=one, out_dtype=torch.bfloat16, use_fast_accum=True)


def _int8(torch: Any) -> Callable[[], Any]:
    a, b = (torch.randint(-128, 128, (MATRIX, MATRIX), device="cuda", dtype=torch.int8) for _ in range(2))
    return lambda: torch._int_mm(a, b.t())


_PRODUCTS: dict[str, Callable[[Any], Callable[[], Any]]] = {
    "bf16": _plain("bfloat16"),
    "fp16": _plain("float16"),
    "tf32": _plain("float32"),
    "fp8": _fp8,
    "int8": _int8,
}


def _bandwidths(torch: Any) -> dict[str, dict[str, float]]:
    """Best and median bytes/s of copy (both ways counted), read (a sum) and write (a fill) of big buffers."""
    free, _ = torch.cuda.mem_get_info()
    elements = min(BUFFER_BYTES, free // 4) // 4
    source = torch.randn(elements, device="cuda")
    target = torch.empty_like(source)
    total = torch.empty((), device="cuda")
    size = 4.0 * elements
    return {
        "copy": _rate(_times_s(torch, lambda: target.copy_(source)), 2 * size),
        "read": _rate(_times_s(torch, lambda: torch.sum(source, dim=0, out=total)), size),
        "write": _rate(_times_s(torch, lambda: target.fill_(1.0)), size),
    }


def _launch_us(torch: Any) -> dict[str, dict[str, float]]:
    """µs between events around a kernel that does nothing: behind a busy stream, and on an idle one."""
    element = torch.zeros(1, device="cuda")
    busy = [t * 1e6 for t in _times_s(torch, lambda: element.add_(1), LAUNCHES)]
    idle = []
    for _ in range(LAUNCHES):
        first, second = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        torch.cuda.synchronize()
        first.record()
        element.add_(1)
        second.record()
        torch.cuda.synchronize()
        idle.append(first.elapsed_time(second) * 1e3)
    return {name: {"best": min(t), "median": median(t)} for name, t in (("busy", busy), ("idle", idle))}
