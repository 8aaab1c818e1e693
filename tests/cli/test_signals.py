"""Ctrl-C, SIGTERM and a second command at the same time: one line each, nothing left, the same command resumes."""

from __future__ import annotations

import shutil
import signal
from pathlib import Path
from typing import Any

from cli_driver import Started, data, drive, environment, one_line, statuses

from roofmark import operators

COMMAND = ("evaluate", "oracle", "--operator", "moe_topk_gating_softmax", "--shapes", "0", "--device", "cpu",
           "--release", "mine", "--backend", "numba", "--json", "-")  # fmt: skip
STOPS = ((signal.SIGINT, "interrupted", "shape 0, eager"), (signal.SIGTERM, "terminated", "calibrating"))


def test_stopped_runs_are_resumed_by_the_same_command(tmp_path: Path) -> None:
    cwd, temporary = tmp_path / "work", tmp_path / "tmp"
    temporary.mkdir()
    shutil.copytree(operators.HERE, cwd / "mine", ignore=shutil.ignore_patterns("__pycache__"))
    for number, word, moment in STOPS:
        started = Started(*COMMAND, cwd=cwd, temporary=temporary)
        started.wait_for(moment)
        (run,) = (cwd / "runs").iterdir()
        if number == signal.SIGINT:
            beside = drive(*COMMAND, cwd=cwd, env=environment(TMPDIR=str(temporary)))
            assert f"runs/{run.name} is being written by another process" in one_line(beside)
        code, out, err = started.end(number)
        assert code == 128 + number
        assert out == ""
        assert err.splitlines()[-1] == f"roofmark: {word}; the same command resumes runs/{run.name}"
        assert all(line.startswith("roofmark: ") for line in err.splitlines())
        assert started.orphans() == []
        assert list(temporary.iterdir()) == []
    done = drive(*COMMAND, cwd=cwd)
    assert f"roofmark: resuming runs/{run.name}: " in done.stderr
    assert list((cwd / "runs").iterdir()) == [run]
    check_the_oracle(data(done))


def check_the_oracle(result: dict[str, Any]) -> None:
    """The oracle is correct, without a kernel, in a release of one's own."""
    assert set(statuses(result).values()) == {"ok"}
    score = result["score"]
    assert score["release"] == "mine"
    assert score["release_sha256"] == operators.content_sha256()
    assert score["shapes"][0]["compiled"] == "fallback"
    assert score["compile_rate_without_fallbacks"] == 0
    assert not any(v["adoption"]["numba"] for v in result["verdicts"] if v["adoption"])


def test_a_signal_before_there_is_a_run(tmp_path: Path) -> None:
    started = Started("hardware", "calibrate", "--device", "cpu", cwd=tmp_path, temporary=tmp_path)
    while not any("calibrate" in line for line in started.children()):
        assert started.process.poll() is None
    code, out, err = started.end(signal.SIGINT)
    assert (code, out, err) == (130, "", "roofmark: interrupted\n")
    assert started.orphans() == []
