"""Every file of the catalogue is sound, and the slips that data sheets invite are refused in one line."""

from __future__ import annotations

import subprocess
import sys
from importlib import resources
from pathlib import Path

import pytest

from roofmark.errors import DeviceError
from roofmark.hardware import load, match, names
from roofmark.hardware.catalogue import DTYPES, parse, problems

FOLDER = Path(str(resources.files("roofmark.hardware"))) / "gpus"


def text(name: str) -> str:
    return (FOLDER / f"{name}.toml").read_text()


def refused(name: str, old: str, new: str) -> str:
    """The message about a file in which `old` was replaced by `new`."""
    assert old in text(name)
    with pytest.raises(DeviceError) as caught:
        parse(text(name).replace(old, new), f"{name}.toml")
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_names() -> None:
    expected = "a100 b200 h100_sxm h20 h200 l20 mi300x mi308x mi355x xpu_a"
    assert names() == tuple(expected.split())


@pytest.mark.parametrize("name", names())
def test_loads(name: str) -> None:
    gpu = load(name)
    assert not problems(gpu)
    limits = gpu.roofline
    assert limits.device == name
    assert set(limits.peak_flops) <= set(DTYPES)
    assert {"bf16", "fp16", "fp8"} <= set(limits.peak_flops)
    assert 1e11 < limits.bandwidth_bytes_per_s < 2e13
    used = {figure.source for figure in gpu.figures.values()} | {peak.source for peak in gpu.peak.values()}
    assert used - {None} <= set(gpu.sources)


def test_the_papers_constants() -> None:
    xpu_a, h20 = load("xpu_a").roofline, load("h20").roofline
    assert xpu_a.peak_flops == {"bf16": 232.65e12, "fp16": 232.65e12, "fp8": 465.3e12, "fp32": 29.1e12}
    assert xpu_a.bandwidth_bytes_per_s == 5.3e12
    assert h20.peak_flops == {"bf16": 148e12, "fp16": 148e12, "fp8": 296e12, "tf32": 74e12, "fp32": 44e12}
    assert h20.bandwidth_bytes_per_s == 4.0e12


def test_via_follows_the_wider_type() -> None:
    a100 = load("a100").roofline
    assert a100.peak_flops["fp8"] == a100.peak_flops["bf16"] == 312e12


def test_unknown_name() -> None:
    with pytest.raises(DeviceError, match=r"no accelerator 'h300'.*h200"):
        load("h300")


@pytest.mark.parametrize(
    ("name", "old", "new", "said"),
    [
        # with sparsity in one dense field, with and without the FLOP a clock to match
        ("h200", "bf16 = { value = 989.5", "bf16 = { value = 1979", "sparsity"),
        ("h200", "fp8 = { value = 1979", "fp8 = { value = 3958", "sparsity"),
        ("h200", "int8 = { value = 1979", "int8 = { value = 3958", "sparsity"),
        ("h200", "tf32 = { value = 494.5", "tf32 = { value = 989", "sparsity"),
        ("b200", "fp4 = { value = 9,", "fp4 = { value = 18,", "sparsity"),
        ("mi300x", "bf16 = { value = 1307.4", "bf16 = { value = 2614.9", "sparsity"),
        ("h20", "fp8 = { value = 296", "fp8 = { value = 592", "sparsity"),
        ("h20", "tf32 = { value = 74", "tf32 = { value = 148", "sparsity"),
        ("xpu_a", "fp16 = { value = 232.65", "fp16 = { value = 465.3", "differ"),
        ("mi308x", "int8 = { value = 465", "int8 = { value = 930", "sparsity"),
        # units and powers of ten
        ("h200", '4.8, unit = "TB/s"', '4.8, unit = "GB/s"', "wrong unit"),
        ("h200", '4.8, unit = "TB/s"', '4.8, unit = "TFLOP/s"', "no unit of bandwidth"),
        ("h200", "value = 4.8", "value = 4800", "wrong unit"),
        ("h200", '67, unit = "TFLOP/s"', '67, unit = "TB/s"', "unit of rate"),
        ("h200", '67, unit = "TFLOP/s"', '67, unit = "GFLOPS"', "unit of rate"),
        ("mi355x", '2.5166, unit = "PFLOP/s"', '2.5166, unit = "TFLOP/s"', "wrong unit"),
        ("h200", '141, unit = "GB"', '141, unit = "GB/s"', "no unit of size"),
        # counts and clocks
        ("h200", "value = 132", "value = 144", "wrong unit, clock or count"),
        (
            "h200",
            "flop_per_clock = 4096, clock_mhz = 1830",
            "flop_per_clock = 8192, clock_mhz = 915",
            "clock",
        ),
        # what is missing or not known
        ("h200", "bandwidth = {", "l2_cache = {", "bandwidth is missing"),
        ("h200", "bf16 = {", "bf15 = {", "bf16 is missing"),
        ("h200", "[peak]", "[peak]\nint4 = { via = 'int8' }", "int4 is unknown"),
        ("h200", "[peak]", "[peak]\nfp4 = { via = 'fp5' }", "via 'fp5'"),
        ("h200", 'unit = "TB/s", source = "sheet"', 'unit = "TB/s", source = "shet"', "source 'shet'"),
        ("h200", "flop_per_clock = 256, clock_mhz = 1980 }", "clock_mhz = 1980 }", "unchecked"),
        ("h200", 'target = "sm_90a"', 'target = "sm_91"', "target 'sm_91'"),
        ("h200", 'confidence = "vendor"', 'confidence = "hearsay"', "confidence"),
        ("h200", 'title = "NVIDIA H200 SXM 141 GB"\n', "", "title"),
        ("h200", "value = 4.8", "value = -4.8", "bandwidth.value"),
        ("h200", "value = 4.8", "value = inf", "bandwidth.value"),
        ("h200", "value = 4.8", "value = '4.8 TB/s'", "bandwidth.value"),
        ("h200", 'vendor = "NVIDIA"', 'vendor = "NVIDIA', "not TOML"),
        ("h200", "[figures]", "[figures", "not TOML"),
        ("h200", 'vendor = "NVIDIA"', 'vendor = "NVIDIA"\nwatts = 700', "watts"),
    ],
)
def test_slips_are_refused(name: str, old: str, new: str, said: str) -> None:
    assert said in refused(name, old, new)


def test_a_sheet_copied_with_sparsity_throughout_is_refused() -> None:
    sparse = text("h200")
    for dense, doubled in (("494.5", "989"), ("989.5", "1979"), ("value = 1979,", "value = 3958,")):
        sparse = sparse.replace(
            f"value = {dense}" if "value" not in dense else dense,
            f"value = {doubled}" if "value" not in dense else doubled,
        )
    for per_clock in (8192, 4096, 2048):
        sparse = sparse.replace(f"flop_per_clock = {per_clock},", f"flop_per_clock = {2 * per_clock},")
    with pytest.raises(DeviceError, match="sparsity"):
        parse(sparse, "h200.toml")


@pytest.mark.parametrize(
    ("device", "memory", "expected"),
    [
        ("NVIDIA H200", None, "h200"),
        ("NVIDIA H200", 150_100_000_000, "h200"),
        ("NVIDIA H200", 18_000_000_000, None),
        ("NVIDIA H200 NVL", None, None),
        ("NVIDIA H100 80GB HBM3", 85_000_000_000, "h100_sxm"),
        ("NVIDIA H100 PCIe", None, None),
        ("NVIDIA H100 NVL", None, None),
        ("NVIDIA H20", 102_000_000_000, "h20"),
        ("NVIDIA H20-3e", None, None),
        ("nvidia  b200", None, "b200"),
        ("NVIDIA A100-SXM4-80GB", 85_000_000_000, "a100"),
        ("NVIDIA A100-SXM4-40GB", None, None),
        ("NVIDIA A100 80GB PCIe", None, None),
        ("NVIDIA L20", None, "l20"),
        ("NVIDIA L20X", None, None),
        ("AMD Instinct MI300X", 206_000_000_000, "mi300x"),
        ("AMD Instinct MI308X", None, "mi308x"),
        ("AMD Instinct MI355X", None, "mi355x"),
        ("AMD Instinct MI325X", None, None),
        ("", None, None),
    ],
)
def test_match(device: str, memory: int | None, expected: str | None) -> None:
    assert match(device, memory) == expected


def test_imports_no_torch() -> None:
    code = (
        "import sys, roofmark.hardware, roofmark.hardware.calibrate as c, roofmark.hardware.cuda;"
        "roofmark.hardware.load('h200'); c.llc_bytes(); assert 'torch' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
