"""The tests against deployed kernels: all marked, skipped where the packages are not there, their rows kept."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import packages
import pytest
from compare import INTERPRETER, Agrees, Case, Kernel, Row, Run, compare
from record import keep

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
