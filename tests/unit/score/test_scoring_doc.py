"""docs/scoring.md says what the code does: its examples run, and its status table is the code's."""

from __future__ import annotations

import doctest
import os
import re
from pathlib import Path

import pytest

from roofmark.records import Compiled, Gate, Status
from roofmark.report.operators import NARROW_COLUMNS, WIDE_COLUMNS
from roofmark.score import TABLE

ROOT = Path(__file__).parents[3]
DOC = ROOT / "docs" / "scoring.md"


def test_the_examples_give_what_they_say(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    result = doctest.testfile(os.fspath(DOC), module_relative=False)
    assert (result.failed, result.attempted > 10) == (0, True)


def test_the_status_table_is_the_codes() -> None:
    rows = re.findall(
        r"^\| `(\w+)` \|[^|]*\| (\S+) \| (\S+) \| (\S+) \| (\S+) \| (\S+) \|$",
        DOC.read_text(encoding="utf-8"),
        re.M,
    )
    counts = {None: "-", True: "1", False: "0"}
    median = {"s": "S", "zero": "0", "no": "no"}
    assert {name: cells for name, *cells in rows} == {
        str(status): [
            counts[row.compiled],
            counts[row.correct],
            median[row.in_median],
            "-" if not row.complete else ("S" if row.in_median == "s" else "0"),
            "yes" if row.complete else "no",
        ]
        for status, row in TABLE.items()
    }
    assert set(TABLE) == {*Status, "missing"}


def test_every_column_is_explained() -> None:
    text = DOC.read_text(encoding="utf-8").replace("-\n", "").lower()
    for column in (*NARROW_COLUMNS, *WIDE_COLUMNS, "T µs", "T_SOL µs", "eager S", "note"):
        word = column.replace("-\n", "").replace("\n", " ").replace("S strict", "S_strict").lower()
        assert f"**{word}**" in text, column


def test_gate_names_are_those_of_the_records() -> None:
    assert [gate.value for gate in Gate] == ["compile", "correctness", "performance"]
    assert Compiled.FALLBACK.value in DOC.read_text(encoding="utf-8")
