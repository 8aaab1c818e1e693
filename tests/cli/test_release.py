"""`roofmark release` as a person types it, and sets of others' judged end to end."""

from __future__ import annotations

from pathlib import Path

import pytest
from cli_driver import data, drive, refused, statuses

from five_files import write_set
from roofmark import operators

WRONG = """
import torch
class Model(torch.nn.Module):
    def forward(self, x):
        return x.sum(-1) * 1.2, x.argmax(-1)
"""


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    cwd = tmp_path_factory.mktemp("release")
    done = drive("release", "build", "--out", "r", cwd=cwd)
    assert (done.returncode, done.stderr) == (0, "")
    assert "2026.07: 30 operators, 440 shapes" in done.stdout
    return cwd / "r"


def test_list_and_show(tmp_path: Path) -> None:
    listed = data(drive("release", "list", "--json", "-", cwd=tmp_path))
    assert [(one["name"], one["operators"], one["shapes"]) for one in listed] == [("2026.07", 30, 440)]
    shown = drive("release", "show", "2026.07", cwd=tmp_path).stdout
    assert all(name in shown for name in operators.names())
    for words in (
        "440 shapes", "memory 16, compute 10, index 4", "bf16 19", "vllm 292, sglang 90, rtp-llm 38, aiter 20",
        "deployed S_agg on xpu_a: 0.1289; 0.1304 by the work as published",
    ):  # fmt: skip
        assert words in shown
    records = data(drive("release", "show", "2026.07", "--json", "-", cwd=tmp_path))
    assert len(records) == 440
    wanted = {"operator", "shape_id", "dims", "work", "work_published", "t_sol_us", "weight", "baseline", "errata"}
    assert all(wanted <= set(record) for record in records)
    assert set(records[0]["work"]) == {"flops", "bytes_read", "bytes_written"}


def test_show_of_a_card(tmp_path: Path) -> None:
    done = drive("release", "show", "2026.07", "--gpu", "h20", cwd=tmp_path)
    assert "0 of 440 shapes do not fit h20 (103 GB); they carry 0% of the weight" in done.stdout
    assert "inputs twice" in done.stdout
    refused("release", "show", "2026.07", "--gpu", "xpu_a", cwd=tmp_path, says="no memory of xpu_a")
    refused("release", "show", "2026.07", "--gpu", "h999", cwd=tmp_path, says="no accelerator 'h999'")


def test_retarget(tmp_path: Path) -> None:
    found = data(drive("release", "retarget", "--gpu", "mi300x", "--json", "-", cwd=tmp_path))
    assert len(found) == 440
    assert all(one["t_sol_us"] > 0 for one in found)
    refused(
        "release", "retarget", "--gpu", "mi308x", cwd=tmp_path, says="no peak of fp32: its constants are incomplete"
    )
    refused("release", "retarget", "--gpu", "h999", cwd=tmp_path, says="no accelerator 'h999'")


def test_build_verify_and_diff(built: Path, tmp_path: Path) -> None:
    assert "as frozen" in drive("release", "verify", built, cwd=tmp_path).stdout
    done = drive("release", "diff", "2026.07", built, cwd=tmp_path)
    assert (done.returncode, done.stdout) == (0, "nothing differs\n")
    refused("release", "build", "--out", built, cwd=tmp_path, says="is there already")
    refused("release", "build", "--out", "no/such", cwd=tmp_path, says="there is no directory")
    refused("release", "show", "2025.01", cwd=tmp_path, says="no release '2025.01'; known: 2026.07")
    refused("release", "verify", "nothing", cwd=tmp_path, says="no release 'nothing'")


def test_what_an_agent_may_see_is_judged_by_nobody(tmp_path: Path) -> None:
    assert drive("release", "build", "2026.07", "--visible", "--out", "v", cwd=tmp_path).returncode == 0
    assert "as frozen" in drive("release", "verify", "v", cwd=tmp_path).stdout
    with (tmp_path / "v" / "mrope" / "shapes.json").open("a") as file:
        file.write("\n")
    done = drive("release", "verify", "v", cwd=tmp_path)
    assert done.returncode == 1
    assert "mrope/shapes.json was changed" in done.stdout
    refused("evaluate", "oracle", "-o", "mrope", "--release", "v", cwd=tmp_path, says="no weights and no works")


def test_a_build_is_judged_as_its_sources(built: Path, tmp_path: Path) -> None:
    listed = data(drive("operators", "list", "--release", built, "--json", "-", cwd=tmp_path))
    assert [one["name"] for one in listed] == list(operators.names())
    done = drive("evaluate", "noop", "-o", "rms_norm", "--shapes", "41", "--device", "cpu", "--release", built,
                 "--json", "-", cwd=tmp_path)  # fmt: skip
    result = data(done)
    assert result["score"]["release"] == "2026.07"
    assert result["score"]["release_sha256"] == operators.content_sha256()
    assert not any("the release offers" in note for note in result["score"]["notes"])


def test_five_files_of_somebody_else_are_judged(tmp_path: Path) -> None:
    write_set(tmp_path / "theirs")
    (tmp_path / "wrong.py").write_text(WRONG)
    listed = data(drive("operators", "list", "--release", "theirs", "--json", "-", cwd=tmp_path))
    assert [(one["name"], one["weight"]) for one in listed] == [("count", 1.0), ("scale", 0.75)]
    common = ("-o", "count", "--release", "theirs", "--device", "cpu", "--json", "-")
    right = data(drive("evaluate", "oracle", *common, "--out", "right", cwd=tmp_path))
    assert set(statuses(right).values()) == {"ok"}
    assert right["score"]["release"] == "theirs"
    assert sum("the release offers no" in note for note in right["score"]["notes"]) == 3
    wrong = drive("evaluate", "wrong.py", *common, "--out", "wrong", cwd=tmp_path)
    assert wrong.returncode == 1
    assert statuses(data(wrong))[("candidate", "0")] == "wrong_values"
    refused("operators", "lint", "count", "--release", "theirs", cwd=tmp_path, says="has no zoo.py")
    (tmp_path / "theirs" / "count" / "metadata.json").write_text("{}")
    refused("evaluate", "oracle", *common[:4], cwd=tmp_path, says="metadata.json has no weight")
