"""What of the GPU calibration needs no GPU; the rest is marked `cuda`."""

from __future__ import annotations

import tomllib

import pytest

from roofmark.errors import DeviceError
from roofmark.hardware.cuda import calibrate_cuda, throttle_reasons
from roofmark.hardware.measured import measured_toml
from roofmark.records import Calibration, Roofline


def test_throttle_reasons() -> None:
    assert throttle_reasons(0) == []
    assert throttle_reasons(0x1 | 0x4 | 0x1000) == ["idle", "software_power_cap", "0x1000"]


def test_measured_toml_reads_back() -> None:
    details = {
        "device": 'NVIDIA "H200"',
        "matrix": 8192,
        "not_measured": ["fp8: no unit"],
        "rates_tflops": {"bf16": {"best": 790.123456789, "median": 737.0}},
        "launch_us": {"busy": {"best": 2.0, "median": 2.25}},
        "state_after": {"sm_clock_mhz": 1980, "throttle_reasons": ["software_power_cap"], "power_w": None},
        "state_before": {},
    }
    limits = Roofline(device="h200", peak_flops={"bf16": 790e12}, bandwidth_bytes_per_s=4.29e12)
    taken = Calibration(taken_at="2026-11-29T00:00:00+00:00", roofline=limits, details=details)
    measured = tomllib.loads(measured_toml(taken))["measured"]
    assert measured["taken_at"] == "2026-11-29T00:00:00+00:00"
    assert measured["device"] == 'NVIDIA "H200"'
    assert measured["rates_tflops"]["bf16"] == {"best": 790.123, "median": 737.0}
    assert measured["state_after"] == {"sm_clock_mhz": 1980, "throttle_reasons": ["software_power_cap"]}
    assert "state_before" not in measured


def test_without_a_device() -> None:
    import torch

    if torch.cuda.is_available():
        pytest.skip("there is a CUDA device")
    with pytest.raises(DeviceError, match="no CUDA device"):
        calibrate_cuda()


@pytest.mark.cuda
def test_on_a_device() -> None:
    from roofmark.hardware import load, match

    taken = calibrate_cuda()
    measured = tomllib.loads(measured_toml(taken))["measured"]
    assert measured["launch_us"]["busy"]["median"] < measured["launch_us"]["idle"]["median"]
    name = match(taken.details["device"])
    if name is None:
        pytest.skip(f"{taken.details['device']} is not in the catalogue")
    vendor = load(name).roofline
    for dtype, best in taken.roofline.peak_flops.items():
        assert best < vendor.peak_flops[dtype] * 1.02, dtype
    assert taken.roofline.bandwidth_bytes_per_s < vendor.bandwidth_bytes_per_s
