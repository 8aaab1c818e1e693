"""The roofline's arithmetic, by hand and against the published bounds of all shapes."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from roofmark.errors import DeviceError
from roofmark.hardware import Regime, load, regime, ridge, t_sol_us
from roofmark.records import Roofline, Work

LIMITS = Roofline(device="toy", peak_flops={"bf16": 4e12, "fp32": 1e12, "fp8": 8e12}, bandwidth_bytes_per_s=1e12)


def work(flops: dict[str, int], read: int = 0, written: int = 0) -> Work:
    return Work(flops=flops, bytes_read=read, bytes_written=written)


def test_memory_bound() -> None:
    assert t_sol_us(work({"fp32": 10}, read=3_000_000, written=1_000_000), LIMITS) == pytest.approx(4.0)


def test_compute_bound_adds_dtypes() -> None:
    assert t_sol_us(work({"bf16": 4_000_000, "fp32": 2_000_000}, read=8), LIMITS) == pytest.approx(3.0)


def test_fp8_formats_share_a_rate() -> None:
    for dtype in ("fp8", "fp8_e4m3", "fp8_e5m2"):
        assert t_sol_us(work({dtype: 8_000_000}), LIMITS) == pytest.approx(1.0)


def test_no_flops() -> None:
    assert t_sol_us(work({}, read=2_000_000), LIMITS) == pytest.approx(2.0)
    assert t_sol_us(work({"int32": 0}, read=2_000_000), LIMITS) == pytest.approx(2.0)


def test_unknown_dtype() -> None:
    with pytest.raises(DeviceError, match="toy has no peak for int32"):
        t_sol_us(work({"int32": 1}), LIMITS)


def test_ridge() -> None:
    assert ridge(LIMITS, "bf16") == 4.0
    assert ridge(load("h200").roofline, "bf16") == pytest.approx(206, abs=1)


def test_regime() -> None:
    assert [regime(x) for x in (0.0, 1e-9, 9.99, 10.0, 1e6)] == [
        Regime.INDEX,
        Regime.MEMORY,
        Regime.MEMORY,
        Regime.COMPUTE,
        Regime.COMPUTE,
    ]
    assert regime(3.0) == "memory"


def test_published_bounds() -> None:
    beside = Path(__file__).resolve().parents[4] / "shared" / "data"
    path = Path(os.environ.get("ROOFMARK_PUBLISHED", beside)) / "published_shapes.jsonl"
    if not path.is_file():
        pytest.skip(f"no {path}: name its folder in ROOFMARK_PUBLISHED")
    limits = {"XPU-A": load("xpu_a").roofline, "H20": load("h20").roofline}
    rows = [json.loads(line) for line in path.read_text().splitlines()]
    assert len(rows) == 440
    for row in rows:
        done = work(row["flops"], row["bytes_read"], row["bytes_written"])
        for gpu, published in row["sol_us"].items():
            where = f"{row['operator']} {row['shape_id']} {gpu}"
            assert t_sol_us(done, limits[gpu]) == pytest.approx(published, rel=1e-9), where
