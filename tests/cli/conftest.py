from __future__ import annotations

import json
import time

import pytest
from cli_driver import NUMBA, SMALL, Judged, drive


@pytest.fixture(scope="session")
def judged(tmp_path_factory: pytest.TempPathFactory) -> Judged:
    """One evaluation that every test may read and none may change."""
    cwd = tmp_path_factory.mktemp("judged")
    start = time.monotonic()
    done = drive(
        "evaluate", NUMBA, "--operator", "rms_norm", "--shapes", SMALL, "--device", "cpu", "--backend", "numba",
        "--release", "built-in", "--out", "run", "--json", "result.json", cwd=cwd,
    )  # fmt: skip
    wall_s = time.monotonic() - start
    assert done.returncode in (0, 1), done.stderr
    return Judged(cwd, done, json.loads((cwd / "result.json").read_text()), wall_s)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """One process has all tests that look at the one evaluation."""
    for item in items:
        if "judged" in getattr(item, "fixturenames", ()):
            item.add_marker(pytest.mark.xdist_group("judged"))
