"""What comes out of release 2026.07 equals what was published; works differ only where the errata say so."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path
from typing import Any

import pytest

from roofmark import hardware, operators, releases
from roofmark.errors import DeviceError, UserError
from roofmark.hardware import t_sol_us
from roofmark.releases import Release
from roofmark.releases.frozen import edits, frozen
from roofmark.releases.gpus import complete_roofline, dtypes_of, fits, retarget, weight_out

REPOSITORY = Path(__file__).resolve().parents[3]
PUBLISHED = Path(os.environ.get("ROOFMARK_PUBLISHED", REPOSITORY / ".." / "shared" / "data"))
GPUS = {"XPU-A": "xpu_a", "H20": "h20"}


@pytest.fixture(scope="module")
def release() -> Release:
    return releases.load("2026.07")


def published(file: str) -> list[dict[str, Any]]:
    """The published figures; skips the test where they are not at hand."""
    path = PUBLISHED / file
    if not path.is_file():
        pytest.skip(f"no {path}: name its folder in ROOFMARK_PUBLISHED")
    text = path.read_text(encoding="utf-8")
    rows: list[dict[str, Any]] = (
        json.loads(text) if path.suffix == ".json" else [json.loads(line) for line in text.splitlines()]
    )
    return rows


def test_all_440_works_and_bounds_equal_the_published_ones(release: Release) -> None:
    rows = published("published_shapes.jsonl")
    assert [(s.operator, s.shape_id) for s in release.shapes] == [(r["operator"], r["shape_id"]) for r in rows]
    assert len(rows) == 440
    for shape, row in zip(release.shapes, rows, strict=True):
        work = shape.work_published
        assert (shape.dims, shape.init) == (row["dims"], row["init"])
        assert {d: n for d, n in work.flops.items() if n} == pytest.approx(
            {d: n for d, n in row["flops"].items() if n}, rel=1e-9
        )
        assert work.bytes_read == pytest.approx(row["bytes_read"], rel=1e-9)
        assert work.bytes_written == pytest.approx(row["bytes_written"], rel=1e-9)
        assert set(row["sol_us"]) == set(GPUS)
        for label, sol_us in row["sol_us"].items():
            assert shape.t_sol_published_us[GPUS[label]] == pytest.approx(sol_us, rel=1e-9)
        told = {b.gpu: (b.backend, b.time_us) for b in shape.baseline}
        assert told == {gpu: (b["backend"], b["time_us"]) for gpu, b in row["baseline"].items()}


def test_weights_equal_the_published_ones(release: Release) -> None:
    rows = published("published_operators.json")
    assert release.weights == {row["operator"]: row["weight"] for row in rows}
    assert frozen("2026.07").weights == release.weights
    assert sum(release.weights.values()) == pytest.approx(1, abs=2e-6)


def test_weights_and_constants_are_those_of_the_operators_and_the_catalogue(release: Release) -> None:
    assert frozen("2026.07").weights == {n: operators.load(n).provenance.weight for n in operators.names()}
    assert release.constants == {gpu: hardware.load(gpu).roofline for gpu in ("xpu_a", "h20")}


def test_counts_and_what_the_deployed_kernels_reach(release: Release) -> None:
    found = releases.totals(release)
    assert (found.operators, found.shapes) == (30, 440)
    assert found.regimes == {"memory": 16, "compute": 10, "index": 4}
    assert found.dtypes == {"bf16": 19, "fp8_e4m3": 5, "fp16": 2, "fp32": 2, "int32": 2}
    assert found.frameworks == {"vllm": 292, "sglang": 90, "rtp-llm": 38, "aiter": 20}
    assert found.backends == {"aiter": 266, "sglang": 151, "rtp": 23}
    assert set(found.deployed_s) == {"xpu_a"}
    assert found.deployed_s_published["xpu_a"] == pytest.approx(0.1304, abs=5e-5)
    assert found.deployed_s["xpu_a"] == pytest.approx(0.1289, abs=5e-5)


def rows_of_errata() -> dict[str, list[tuple[str, str]]]:
    """What differs and its effect on the works, by operator, as docs/errata.md has it."""
    text = (REPOSITORY / "docs" / "errata.md").read_text(encoding="utf-8")
    found: dict[str, list[tuple[str, str]]] = {}
    for title, body in (part.split("\n", 1) for part in re.split(r"^## ", text, flags=re.M)[1:]):
        cells = [re.split(r"(?<!\\)\|", line) for line in body.splitlines() if line.startswith("| ")]
        for name in title.split(", "):
            found[name] = [(row[1].strip(), row[3].strip()) for row in cells if row[1].strip() != "what differs"]
    return found


def test_the_works_differ_in_the_rows_that_the_errata_name_alone(release: Release) -> None:
    assert all(bool(s.errata) == (s.work != s.work_published) for s in release.shapes)
    differ = {s.operator for s in release.shapes if s.work != s.work_published}
    assert differ == set(frozen("2026.07").errata)
    told = {
        name
        for name, rows in rows_of_errata().items()
        # FLOPs under another type of the same peak change no figure but the work
        if any(not effect.startswith("none") or what.startswith("FLOPs of") for what, effect in rows)
    }
    assert told == differ


def test_every_deployed_time_is_above_every_bound(release: Release) -> None:
    for shape in release.shapes:
        for baseline in shape.baseline:
            assert shape.t_sol_us[GPUS[baseline.gpu]] < baseline.time_us


def test_the_sources_are_as_they_were_frozen() -> None:
    assert edits("2026.07") == (), "after a deliberate change: python -m roofmark.releases.freeze"


def test_an_edit_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    from roofmark.releases import frozen as module

    before = module.source_sha256()
    monkeypatch.setattr(module, "source_sha256", lambda: {**before, "rms_norm": "0" * 64, "other": "1"})
    assert edits("2026.07") == (
        "rms_norm was edited since 2026.07 was frozen",
        "other was added since 2026.07 was frozen",
    )


def test_bounds_on_another_gpu(release: Release) -> None:
    found = retarget(release, "h200")
    roofline = hardware.load("h200").roofline
    assert [(one.operator, one.shape_id) for one in found] == [(s.operator, s.shape_id) for s in release.shapes]
    assert all(one.t_sol_us == t_sol_us(s.work, roofline) for one, s in zip(found, release.shapes, strict=True))


def test_incomplete_constants_are_refused(release: Release) -> None:
    gpu = hardware.load("h20")
    bare = gpu.model_copy(update={"peak": {d: p for d, p in gpu.peak.items() if d != "fp8"}})
    assert dtypes_of(release) == ("bf16", "fp16", "fp32", "fp8_e4m3")
    with pytest.raises(DeviceError, match="no peak of fp8_e4m3: its constants are incomplete"):
        complete_roofline(bare, dtypes_of(release))


def test_what_a_card_holds(release: Release) -> None:
    found = fits(release, "h20")
    assert len(found) == 440
    assert all(one.fits for one in found)
    assert weight_out(release, found) == 0
    small = tuple(one.model_copy(update={"memory_bytes": 24 << 30}) for one in found)
    out = {(one.operator, one.shape_id) for one in small if not one.fits}
    assert ("per_token_group_quant_fp8", "9") in out
    share = sum(release.weights[name] / len(operators.load(name).shapes) for name, _ in out)
    assert weight_out(release, small) == pytest.approx(share / sum(release.weights.values()))
    with pytest.raises(DeviceError, match="no memory of xpu_a"):
        fits(release, "xpu_a")


def test_an_unknown_release_is_refused() -> None:
    with pytest.raises(UserError, match=r"no release '2025.01'.*2026.07"):
        releases.load("2025.01")
