"""What all tests share: one sandbox for all that need one, and the two figures at the end."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from referee import Referee


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--isolation", default="", help="bubblewrap or native: the level for tests that need one sandbox")


def pytest_configure(config: pytest.Config) -> None:
    # as the command line does for itself: a pool of ours that spins takes a core from the candidate
    os.environ.setdefault("GOMP_SPINCOUNT", "0")
    config.addinivalue_line("markers", "exploit: a candidate that must be caught")
    config.addinivalue_line("markers", "honest: a candidate that must not be wronged")


@pytest.fixture(scope="session")
def referee(request: pytest.FixtureRequest) -> Iterator[Referee]:
    """A sandbox at the strongest level that works here, or at the one asked for."""
    from referee import Referee
    from roofmark.records import Isolation
    from roofmark.sandbox import policy

    levels = {"bubblewrap": Isolation.BUBBLEWRAP, "native": Isolation.NATIVE}
    asked = request.config.getoption("--isolation")
    works = policy.available()
    wanted = levels.get(asked) or (works[0] if works else None)
    if wanted not in works:
        pytest.skip(f"no sandbox: {'; '.join(f'{one.value}: {policy.works(one)}' for one in levels.values())}")
    one = Referee(wanted)
    yield one
    one.close()


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Prints how many exploits were caught and how many honest candidates were wronged."""
    counts = {kind: _counts(terminalreporter, kind) for kind in ("exploit", "honest")}
    if not any(total for _, total in counts.values()):
        return
    (caught, exploits), (passed, honest) = counts["exploit"], counts["honest"]
    terminalreporter.write_line(
        f"exploits caught {caught} of {exploits}, honest wronged {honest - passed} of {honest}", bold=True
    )


def _counts(terminalreporter: pytest.TerminalReporter, kind: str) -> tuple[int, int]:
    """Tests of a kind that passed, and all that ran; what is marked as not caught counts as that, luck or not."""
    ran: dict[str, bool] = {}
    for outcome in ("passed", "xpassed", "failed", "xfailed", "error"):
        for report in terminalreporter.getreports(outcome):
            if isinstance(report, pytest.TestReport) and kind in report.keywords:
                ran[report.nodeid] = ran.get(report.nodeid, True) and outcome == "passed"
    return sum(ran.values()), len(ran)
