"""`kill -9` of the referee at random moments: every resume completes, and ends as an undisturbed run would."""

from __future__ import annotations

import os
import random
import signal
import time
from pathlib import Path
from typing import Any

import pytest
from cli_driver import NUMBA, SMALL, Judged, Started, data, drive, environment, statuses

COMMAND = ("evaluate", NUMBA, "-o", "rms_norm", "--shapes", SMALL, "--device", "cpu", "--out", "run", "--json", "-")
OLD_S = 3600
FEWEST_CALLS = 15  # timed ones


@pytest.fixture
def rng(request: pytest.FixtureRequest) -> random.Random:
    """Random moments; the seed is printed where a test fails, and ROOFMARK_KILL_SEED repeats it."""
    seed = int(os.environ.get("ROOFMARK_KILL_SEED") or random.SystemRandom().randrange(10**6))
    print(f"ROOFMARK_KILL_SEED={seed}")
    return random.Random(f"{seed} {request.node.name}")


def kill_after(seconds: float, cwd: Path, temporary: Path) -> bool:
    """Whether the referee was killed so long after its start, before it was through; nothing of it lives on."""
    started = Started(*COMMAND, cwd=cwd, temporary=temporary)
    deadline = time.monotonic() + seconds
    while started.process.poll() is None and time.monotonic() < deadline:
        time.sleep(0.005)
    through = started.process.poll() is not None
    code, _, err = started.end(signal.SIGKILL)
    assert code == (-signal.SIGKILL if not through else code), err
    assert not through or code in (0, 1), err
    assert started.orphans() == []
    return not through


def resume(judged: Judged, cwd: Path, temporary: Path) -> None:
    """Runs the same command to its end and compares what comes out."""
    for left in temporary.iterdir():  # as if hours had passed
        os.utime(left, (time.time() - OLD_S,) * 2)
    done = drive(*COMMAND, cwd=cwd, env=environment(TMPDIR=str(temporary)))
    assert done.returncode in (0, 1), done.stderr
    assert list(temporary.iterdir()) == []
    result = data(done)
    assert alike(result) == alike(judged.result)
    shape = result["score"]["shapes"][0]
    if shape["status"] == "ok":
        assert 0 < shape["s"] < 1
    assert result["score"]["complete"]
    lines = (cwd / "run" / "verdicts.jsonl").read_bytes()
    assert lines.count(b"\n") == 2
    scored = data(drive("score", "run", "--json", "-", cwd=cwd))
    assert scored[0]["score"] == result["score"]


def alike(result: dict[str, Any]) -> dict[str, Any]:
    """What a run must say, its timings aside."""
    kept = ("dims", "stand_in", "gate", "compiled", "work")
    verdicts = {v["subject"]: {k: v[k] for k in kept if k != "gate" or v["status"] != "unstable"}
                for v in result["verdicts"]}  # fmt: skip
    enough = {v["subject"]: v["calls_checked"] >= FEWEST_CALLS for v in result["verdicts"]}
    sources = sorted(a["kind"] for v in result["verdicts"] for a in v["artefacts"])
    return {"statuses": statuses(result), "verdicts": verdicts, "enough": enough, "artefacts": sources,
            "release": result["score"]["release_sha256"]}  # fmt: skip


def test_killed_three_times(judged: Judged, tmp_path: Path, rng: random.Random) -> None:
    temporary = tmp_path / "tmp"
    temporary.mkdir()
    for part in range(3):
        kill_after(judged.wall_s * (part + rng.random()) / 5, tmp_path, temporary)
    resume(judged, tmp_path, temporary)


@pytest.mark.slow
def test_killed_at_twenty_moments(judged: Judged, tmp_path: Path, rng: random.Random) -> None:
    killed = 0
    for moment in range(20):
        cwd, temporary = tmp_path / str(moment), tmp_path / f"tmp-{moment}"
        cwd.mkdir()
        temporary.mkdir()
        killed += kill_after(judged.wall_s * (moment + rng.random()) / 20, cwd, temporary)
        resume(judged, cwd, temporary)
    assert killed >= 10
