"""Sizes, works, times and weights equal the published ones; works differ only where docs/errata.md says so."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest
from operator_check import NAMES, PUBLISHED, published

from roofmark import operators
from roofmark.operators import Operator
from roofmark.records import Shape, Work

# Dense peaks, FLOP/s, and bandwidths, bytes/s, of the paper's two accelerators.
DEVICES = {
    "XPU-A": ({"bf16": 232.65e12, "fp16": 232.65e12, "fp8_e4m3": 465.3e12, "fp32": 29.1e12}, 5.3e12),
    "H20": ({"bf16": 148e12, "fp16": 148e12, "fp8_e4m3": 296e12, "fp32": 44e12}, 4.0e12),
}
SHAPES = {
    "attention_forward": 21,
    "block_scaled_mm": 24,
    "moe_topk_gating_softmax": 10,
    "paged_attention_decode": 8,
    "rms_norm": 56,
    "silu_and_mul": 37,
}


def _t_sol_us(work: Work, device: str) -> float:
    peaks, bandwidth = DEVICES[device]
    compute = sum(flops / peaks[dtype] for dtype, flops in work.flops.items())
    return 1e6 * max(compute, work.bytes_total / bandwidth)


def _difference(operator: Operator, shape: Shape) -> Work:
    """What the errata say is between the published work and the one that scores."""
    sizes, before = shape.sizes, operator.work_published(shape.sizes)
    flops, read, written = before.flops, before.bytes_read, before.bytes_written
    if operator.name == "attention_forward":
        read -= 4 * (len(sizes["seq_lens"]) + 1)
    if operator.name == "block_scaled_mm":
        written -= 2 * sizes["m"] * sizes["n"]
    if operator.name == "paged_attention_decode":
        read -= 4 * 16 * sizes["block_size"] * sizes["num_kv_heads"] * sizes["head_size"]
        flops = {sizes["dtype"]: before.flops["bf16"]}
    return Work(flops=flops, bytes_read=read, bytes_written=written)


@pytest.mark.parametrize("name", NAMES)
def test_sizes_works_and_times_equal_the_published_ones(name: str) -> None:
    rows = published(name)
    operator = operators.load(name)
    assert [s.shape_id for s in operator.shapes] == [row["shape_id"] for row in rows]
    baselines = {(b.shape_id, b.gpu): (b.backend, b.time_us) for b in operator.provenance.baselines}
    for shape, row in zip(operator.shapes, rows, strict=True):
        assert (shape.dims, shape.init) == (row["dims"], row["init"])
        work = operator.work_published(shape.sizes)
        assert work.flops == row["flops"]
        assert (work.bytes_read, work.bytes_written) == (row["bytes_read"], row["bytes_written"])
        for device, sol_us in row["sol_us"].items():
            assert _t_sol_us(work, device) == pytest.approx(sol_us, rel=1e-9)
        for gpu, baseline in row["baseline"].items():
            assert baselines.pop((shape.shape_id, gpu)) == (baseline["backend"], baseline["time_us"])
        assert operator.provenance.frameworks.get(shape.shape_id) == row["source_framework"]
        assert operator.provenance.call_counts.get(shape.shape_id) == row["call_count"]
    assert not baselines


@pytest.mark.parametrize("name", NAMES)
def test_weights_equal_the_published_ones(name: str) -> None:
    published(name)  # skips where the figures are not at hand
    rows = json.loads((PUBLISHED / "published_operators.json").read_text(encoding="utf-8"))
    row = next(r for r in rows if r["operator"] == name)
    operator = operators.load(name)
    kept = operator.provenance.model_dump(include={"framework", "symbol", "raw_importance", "weight", "num_profiles"})
    assert kept == {key: row[key] for key in kept}
    assert (operator.spec.dtype, operator.spec.phase) == (row["dtype"], row["phase"])


@pytest.mark.parametrize("name", NAMES)
def test_the_work_that_scores_differs_only_as_the_errata_say(name: str) -> None:
    operator = operators.load(name)
    assert len(operator.shapes) == SHAPES[name]
    for shape in operator.shapes:
        assert operator.work(shape.sizes) == _difference(operator, shape)


@pytest.mark.parametrize("name", NAMES)
def test_no_deployed_time_is_below_the_bound(name: str) -> None:
    operator = operators.load(name)
    for baseline in operator.provenance.baselines:
        work = operator.work(operator.shape(baseline.shape_id).sizes)
        assert _t_sol_us(work, baseline.gpu) < baseline.time_us


def test_work_and_records_need_no_torch() -> None:
    script = (
        "import sys; from roofmark import operators as o; "
        f"[o.load(n).work(s.sizes) for n in {NAMES!r} for s in o.load(n).shapes]; sys.exit('torch' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", script], check=False).returncode == 0
