"""The commands that only show: operators, hardware, runs, score, doctor."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from cli_driver import SMALL, Finished, Judged, data, drive, drive_all, environment

from roofmark import hardware, operators

LISTS = (("operators", "list"), ("operators", "show", "rms_norm"), ("hardware", "list"), ("hardware", "show", "h200"),
         ("doctor",), ("runs", "."), ("score", "run"))  # fmt: skip


@pytest.fixture(scope="module")
def shown(judged: Judged) -> dict[int, Finished]:
    cases = {" ".join(command): command for command in LISTS}
    return {c: drive_all(cases, lambda _: judged.cwd, env=environment(COLUMNS=str(c))) for c in (80, 120)}


@pytest.mark.parametrize("command", LISTS, ids=" ".join)
@pytest.mark.parametrize("columns", [80, 120])
def test_tables_fit_and_hide_nothing(shown: dict[int, Finished], command: tuple[str, ...], columns: int) -> None:
    done, trace = shown[columns][" ".join(command)]
    assert (done.returncode, done.stderr, trace) == (0, "", False)
    assert "…" not in done.stdout
    table = [line for line in done.stdout.splitlines() if "http" not in line and ": " not in line and "/" not in line]
    if command[:2] == ("operators", "show"):  # the reference is printed as it is written
        reference = operators.load(command[2]).reference_text().splitlines()
        table = [line for line in table if line.rstrip() not in reference]
    assert max(map(len, table)) <= columns


def test_operators(tmp_path: Path) -> None:
    listed = data(drive("operators", "list", "--json", "-", cwd=tmp_path))
    assert [o["name"] for o in listed] == list(operators.names())
    assert {"formula", "dtype", "phase", "weight", "shapes"} <= set(listed[0])
    assert data(drive("operators", "show", "rms_norm", "--json", "-", cwd=tmp_path))["shapes"][41]["work"]
    every = drive_all({name: ("operators", "show", name) for name in operators.names()}, lambda _: tmp_path)
    for name, (done, _) in every.items():
        text = done.stdout
        assert operators.load(name).spec.formula in text
        assert f"\n{operators.load(name).shapes[-1].shape_id} " in text
    rms_norm = every["rms_norm"][0].stdout
    assert "2500x1024" in rms_norm
    assert "7.68 MFLOP" in rms_norm
    assert "12205x1024" in rms_norm  # the stand-in of shape 3


def test_hardware(tmp_path: Path) -> None:
    listed = data(drive("hardware", "list", "--json", "-", cwd=tmp_path))
    assert [gpu["name"] for gpu in listed] == list(hardware.names())
    shown = drive("hardware", "show", "h200", cwd=tmp_path).stdout
    for words in ("989.5  TFLOP/s", "4.8  TB/s", "sheet", "2026-", "https://"):
        assert words in shown
    assert (
        data(drive("hardware", "show", "h200", "--json", "-", cwd=tmp_path)) == listed[hardware.names().index("h200")]
    )
    for name in hardware.names():
        assert drive("hardware", "show", name, cwd=tmp_path).returncode == 0


def test_calibrate(tmp_path: Path) -> None:
    done = drive("hardware", "calibrate", "--device", "cpu", "--json", "measured.json", cwd=tmp_path)
    assert done.returncode == 0
    assert "GB/s" in done.stdout
    shown = json.loads((tmp_path / "measured.json").read_text())
    assert shown["roofline"]["bandwidth_bytes_per_s"] > 1e9
    assert shown["roofline"]["peak_flops"]["fp32"] > 1e9


def test_doctor(tmp_path: Path) -> None:
    done = drive("doctor", "--json", "-", cwd=tmp_path)
    checks = data(done)
    assert done.returncode == 0
    assert {"python", "C compiler", "torch", "sandbox", "backend: numba", "cuda"} <= {c["what"] for c in checks}
    assert all(c["remedy"] for c in checks if not c["works"])
    bare = drive("doctor", cwd=tmp_path, env=environment(PATH="/nowhere", CC=None))
    assert bare.returncode == 2
    assert "apt-get install gcc" in bare.stdout


def test_runs_and_score(judged: Judged, tmp_path: Path) -> None:
    assert "no runs yet" in drive("runs", cwd=tmp_path).stdout
    assert data(drive("runs", "--json", "-", cwd=tmp_path)) == []
    assert drive("runs", ".", cwd=tmp_path).stdout == "no runs in .\n"
    listed = data(drive("runs", ".", "--json", "-", cwd=judged.cwd))
    assert [(r["path"], r["operators"], r["candidates"], r["done"], r["total"]) for r in listed] == [
        ("run", ["rms_norm"], ["rms_norm.py"], 1, 1)
    ]
    assert listed[0]["s"] == [judged.result["score"]["operators"][0]["s"]]
    scores = data(drive("score", "run", "run", "--json", "-", cwd=judged.cwd))
    assert [s["score"] for s in scores] == [judged.result["score"]] * 2
    printed = drive("score", "run", cwd=judged.cwd).stdout
    assert printed.rstrip() == judged.done.stdout.rstrip()
    assert SMALL in printed


def test_help_is_to_be_had_everywhere(tmp_path: Path) -> None:
    for group in ((), ("operators",), ("hardware",)):
        bare = drive(*group, cwd=tmp_path)
        assert (bare.returncode, bare.stdout) == (2, "")
        assert bare.stderr == drive(*group, "--help", cwd=tmp_path).stdout
    assert drive("--version", cwd=tmp_path).stdout.startswith("roofmark 0.")
