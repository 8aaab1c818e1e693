"""`roofmark operators lint` as a person calls it."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from cli_driver import SMALL, drive, one_line

from roofmark import operators


@pytest.fixture
def mine(tmp_path: Path) -> Path:
    """A set of one operator of one's own."""
    ignore = shutil.ignore_patterns("__pycache__")
    return Path(shutil.copytree(operators.HERE / "rms_norm", tmp_path / "mine" / "rms_norm", ignore=ignore))


def test_a_proven_operator(tmp_path: Path) -> None:
    done = drive("operators", "lint", "rms_norm", "--shapes", f"{SMALL},15", "--json", "proof.json", cwd=tmp_path)
    assert done.returncode == 0
    assert "roofmark: rms_norm shape 15 (1 of 2)" in done.stderr
    assert "rms_norm     2/2" in done.stdout
    assert "yes" in next(line for line in done.stdout.splitlines() if line.startswith("rms_norm")).split()
    (proof,) = json.loads((tmp_path / "proof.json").read_text())
    assert [shape["shape_id"] for shape in proof["shapes"]] == ["15", SMALL]
    assert proof["faults"] == []
    assert proof["shapes"][0]["killed"]["zeros"] > 10


def test_an_operator_that_is_not_proven(tmp_path: Path, mine: Path) -> None:
    reference = mine / "reference.py"
    reference.write_text(reference.read_text().replace("+ self.eps", ""))
    done = drive("operators", "lint", "--all", "--shapes", SMALL, "--release", "mine", cwd=tmp_path)
    assert done.returncode == 1
    assert "rms_norm     0/1" in done.stdout
    line = f"rms_norm {SMALL}, shape: reference: y["
    assert any(text.startswith(line) for text in done.stdout.splitlines())
    assert f"roofmark: {line}" in done.stderr


def test_an_operator_without_a_zoo(tmp_path: Path, mine: Path) -> None:
    (mine / "zoo.py").unlink()
    line = one_line(drive("operators", "lint", "rms_norm", "--release", "mine", cwd=tmp_path))
    assert "has no zoo.py" in line
