"""`roofmark evaluate` from end to end."""

from __future__ import annotations

import shutil
from pathlib import Path

from cli_driver import NUMBA, SMALL, Judged, data, drive, drive_all, refused, statuses, tree


def test_the_shipped_kernel_passes_and_says_so(judged: Judged) -> None:
    result, done = judged.result, judged.done
    assert statuses(result) == {("eager", SMALL): "ok", ("candidate", SMALL): "ok"}
    settled = all(v["status"] == "ok" for v in result["verdicts"] if v["subject"] == "candidate")
    assert done.returncode == (0 if settled else 1)
    for words in ("rms_norm", "3x256", "T_SOL", "eager S", "adopted", "held against  cpu", "bubblewrap"):
        assert words in done.stdout
    assert done.stdout.endswith("run: run\n")
    assert "calibrating the CPU" in done.stderr
    assert all(line.startswith("roofmark: ") for line in done.stderr.splitlines())


def test_the_records_behind_the_table(judged: Judged) -> None:
    result = judged.result
    assert result["run"] == "run"
    verdict = next(v for v in result["verdicts"] if v["subject"] == "candidate")
    assert verdict["compiled"] == "artefact"
    assert verdict["artefacts"]
    assert verdict["adoption"] is None or verdict["adoption"]["numba"] > 0
    assert verdict["work"]["bytes_read"] == 3 * 256 * 2 + 256 * 2
    score = result["score"]
    assert score["complete"]
    assert score["partial"]
    assert score["s_agg"] is None
    assert len(score["roofline"]["peak_flops"]) >= 5
    if verdict["status"] == "ok":
        assert 0 < score["shapes"][0]["s"] < 1
    assert sorted(p.name for p in judged.cwd.iterdir()) == ["result.json", "run"]
    assert {"manifest.json", "verdicts.jsonl", "calibrations.jsonl", "artefacts"} <= {
        p.name for p in (judged.cwd / "run").iterdir()
    }


def test_a_finished_run_is_shown_again_and_not_run(judged: Judged) -> None:
    before = tree(judged.cwd)
    done = drive("evaluate", NUMBA, "-o", "rms_norm", "--shapes", SMALL, "--out", "run", "--json", "-", cwd=judged.cwd)
    assert done.returncode == judged.done.returncode
    assert data(done) == judged.result
    assert done.stderr == "roofmark: run is finished: this is its stored result, and nothing was run\n"
    assert tree(judged.cwd) == before


def test_a_run_cut_off_before_its_last_calibration_is_closed(judged: Judged, tmp_path: Path) -> None:
    run = shutil.copytree(judged.cwd / "run", tmp_path / "runs" / "mine")
    first, *_ = (run / "calibrations.jsonl").read_bytes().splitlines(keepends=True)
    (run / "calibrations.jsonl").write_bytes(first)
    assert not data(drive("score", run, "--json", "-", cwd=tmp_path))[0]["score"]["complete"]
    done = drive("evaluate", NUMBA, "-o", "rms_norm", "--shapes", SMALL, "--device", "cpu", "--json", "-", cwd=tmp_path)
    assert done.returncode == judged.done.returncode
    assert done.stderr.splitlines() == [
        "roofmark: resuming runs/mine: 2 of 2 verdicts are there",
        "roofmark: calibrating the CPU",
    ]
    assert data(done)["score"]["complete"]
    assert data(done)["verdicts"] == judged.result["verdicts"]


def test_another_candidate_may_not_write_into_a_run(judged: Judged) -> None:
    refused("evaluate", "oracle", "-o", "rms_norm", "--shapes", SMALL, "--device", "cpu", "--out", "run",
            cwd=judged.cwd, says="run holds a run of another candidate.*write to another directory")  # fmt: skip


def test_noop_fails_and_an_empty_file_does_not_compile(tmp_path: Path) -> None:
    (tmp_path / "empty.py").write_text("")
    options = ("-o", "moe_topk_gating_softmax", "--shapes", " 0", "--device", "auto", "--json", "-")
    # at once, in the same default place, and neither in the way of the other
    both = drive_all({c: ("evaluate", c, *options) for c in ("noop", "empty.py")}, lambda _: tmp_path)
    for candidate, status in (("noop", "wrong_shape_or_dtype"), ("empty.py", "compile_error")):
        done, _ = both[candidate]
        assert done.returncode == 1, done.stderr
        result = data(done)
        found = next(v for v in result["verdicts"] if v["subject"] == "candidate")
        assert found["status"] == status
        assert found["message"]
        assert (tmp_path / result["run"] / "verdicts.jsonl").is_file()
        assert Path(result["run"]).parent == Path("runs")
    listed = data(drive("runs", "--json", "-", cwd=tmp_path))
    assert sorted(r["candidates"] for r in listed) == [["empty.py"], ["noop"]]
    assert not any(r["s"][0] for r in listed)
