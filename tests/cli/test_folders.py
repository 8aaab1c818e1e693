"""What a killed referee leaves in the temporary folder is removed by the next, and nothing else is."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from roofmark.sandbox import folders


def test_only_what_was_left_is_swept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    held, left, young = folders.make(), folders.make(), folders.make()
    lock = folders.hold(held)
    (left / "cache").mkdir()
    (left / "cache" / "object").write_text("x")
    (tmp_path / "roofmark-0").mkdir()  # where calibrations are built without a home
    (tmp_path / f"{folders.PREFIX}file").write_text("no folder")
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / f"{folders.PREFIX}link").symlink_to("elsewhere")
    for folder in (held, left, tmp_path / "roofmark-0", tmp_path / "elsewhere"):
        os.utime(folder, (time.time() - 3600,) * 2)
    assert folders.sweep() == 1
    assert {p.name for p in tmp_path.iterdir()} == {
        held.name, young.name, "roofmark-0", "elsewhere", f"{folders.PREFIX}file", f"{folders.PREFIX}link",
    }  # fmt: skip
    os.close(lock)
    assert folders.sweep(now=time.time() + 3600) == 2
    assert (tmp_path / "elsewhere").is_dir()
