"""The tests against deployed kernels: all marked, skipped where the packages are not there, their rows kept."""

from __future__ import annotations

import dataclasses
import json
import os
import platform
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import packages
import pytest
import torch
from compare import INTERPRETER, Agrees, Case, Kernel, Row, Run, compare

HERE = Path(__file__).parent
RECORD = "ROOFMARK_DEPLOYED_RECORD"


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if HERE in item.path.parents:
            item.add_marker(pytest.mark.deployed)


@pytest.fixture(scope="session")
def rows() -> Iterator[list[Row]]:
    """What was compared; written at the end to the file that ROOFMARK_DEPLOYED_RECORD names, beside what is there."""
    made: list[Row] = []
    yield made
    path = os.environ.get(RECORD)
    if path and made:
        keep(Path(path), made)


@pytest.fixture
def agrees(rows: list[Row]) -> Agrees:
    """Compares a kernel with the operator of a case; skips where the kernel's package is not installed."""

    def check(kernel: Kernel, case: Case, run: Run) -> None:
        if kernel.package != "torch" and packages.version(kernel.package) is None:
            pytest.skip(f"{packages.PACKAGES[kernel.package]} is not installed: make test-deployed does it")
        if kernel.device == INTERPRETER and os.environ.get("TRITON_INTERPRET") != "1":
            pytest.skip("needs TRITON_INTERPRET=1, as make test-deployed sets it")
        rows.append(compare(kernel, case, run))

    return check


def keep(path: Path, made: list[Row]) -> None:
    """Writes rows to a JSON file; of those in it, the ones of other kernels or sizes stay."""
    new = [json.loads(json.dumps(dataclasses.asdict(row))) for row in made]
    seen = [key(row) for row in new]
    old = json.loads(path.read_text(encoding="utf-8"))["rows"] if path.is_file() else []
    every = sorted([row for row in old if key(row) not in seen] + new, key=key)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps({"environment": environment(), "rows": every}, indent=1) + "\n", encoding="utf-8")


def key(row: dict[str, Any]) -> tuple[str, str, str, str]:
    """What tells one row from another."""
    kernel = row["kernel"]
    return row["operator"], kernel["package"], kernel["name"], json.dumps(row["sizes"], sort_keys=True)


def environment() -> dict[str, str | None]:
    """On what the kernels ran."""
    lines = Path("/proc/cpuinfo").read_text().splitlines() if Path("/proc/cpuinfo").is_file() else []
    model = next((line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")), "")
    found = {name: packages.version(package) for package, name in packages.PACKAGES.items()}
    return {
        "date": f"{datetime.now(UTC):%Y-%m-%d}", "processor": model or platform.machine(), "torch": torch.__version__,
        "triton": _version("triton"), "numpy": _version("numpy"), "python": platform.python_version(), **found,
    }  # fmt: skip


def _version(name: str) -> str | None:
    from importlib import metadata

    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None
