"""Which rows of several outputs are compared: outputs of one leading dimension, of several, and coupled rows."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import Tensor

from roofmark import operators
from roofmark.errors import ProblemError
from roofmark.evaluate.correctness import check_outputs
from roofmark.operators import Operator
from roofmark.records import Status

# `doubled` has `count` rows, `pairs` half as many: their sums by twos
FILES = {
    "operator.toml": """
name = "toy"
title = "Toy"
formula = "doubled = 2 x, pairs = sums of two neighbours"
dtype = "fp32"
phase = "decode"
outputs = ["doubled", "pairs"]
""",
    "shapes.toml": '[[shape]]\nshape_id = "0"\ndims = { count = 8 }\n',
    "provenance.toml": """
framework = "none"
symbol = "toy"
raw_importance = 1.0
weight = 1.0
num_profiles = 1
source = "none"
baselines = []
""",
    "reference.py": "",
    "work.py": "",
    "inputs.py": """
from roofmark.records import OutputSpec


def outputs(*, count):
    return (
        OutputSpec(name="doubled", shape=(count, 3), dtype="int64"),
        OutputSpec(name="pairs", shape=(count // 2, 3), dtype="int64"),
    )
""",
}
ORACLE = """
import torch
from roofmark.operators.expected import Expected


def expected_rows(inputs, sizes, index):
    x = inputs["x"]
    pairs = index[index % 2 == 0] // 2
    return {
        "doubled": Expected(2 * x[index], None),
        "pairs": Expected((x[::2] + x[1::2])[pairs], None),
    }
"""
ROWS_OF = """

def rows_of(sizes, index):
    return {"doubled": index, "pairs": index[index % 2 == 0] // 2}
"""
WHOLE = """

WHOLE = True


def judge_rows(inputs, sizes, index, outputs):
    assert len(index) == sizes["count"]
    right = outputs["doubled"].sum() == 2 * outputs["pairs"].sum() == 2 * inputs["x"].sum()
    return "" if right else "a sum that is not the inputs'"
"""
SIZES = {"count": 8}


def toy(root: Path, oracle: str) -> Operator:
    """The toy operator, with this oracle."""
    (root / "toy").mkdir()
    for name, text in {**FILES, "oracle.py": oracle}.items():
        (root / "toy" / name).write_text(text)
    return operators.load("toy", root)


def answer(x: Tensor) -> dict[str, Tensor]:
    """The right outputs."""
    return {"doubled": 2 * x, "pairs": x[::2] + x[1::2]}


X = torch.arange(24).view(8, 3)


@pytest.mark.parametrize("rows", [None, torch.tensor([0, 3, 4, 7])])
def test_each_output_is_compared_at_the_rows_that_the_oracle_names(tmp_path: Path, rows: Tensor | None) -> None:
    operator = toy(tmp_path, ORACLE + ROWS_OF)
    assert check_outputs(operator, {"x": X}, SIZES, answer(X), rows).finding is None
    wrong = answer(X)
    wrong["pairs"][2, 1] += 1  # of rows 4 and 5
    finding = check_outputs(operator, {"x": X}, SIZES, wrong, rows).finding
    assert finding is not None
    assert finding.message.startswith("pairs[2, 1] is 30, should be 29")


def test_rows_that_were_not_chosen_are_left_alone(tmp_path: Path) -> None:
    operator = toy(tmp_path, ORACLE + ROWS_OF)
    wrong = answer(X)
    wrong["pairs"][2] += 1
    assert check_outputs(operator, {"x": X}, SIZES, wrong, torch.tensor([0, 3, 7])).finding is None


def test_outputs_that_differ_in_rows_need_an_oracle_that_says_how(tmp_path: Path) -> None:
    operator = toy(tmp_path, ORACLE)
    with pytest.raises(ProblemError, match="differ in rows"):
        check_outputs(operator, {"x": X}, SIZES, answer(X), None)


@pytest.mark.parametrize("rows", [None, torch.tensor([0, 3])])
def test_coupled_rows_are_judged_together_whatever_rows_were_chosen(
    tmp_path: Path, rows: Tensor | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("roofmark.evaluate.correctness.CHUNK_ELEMENTS", 6)
    operator = toy(tmp_path, ORACLE + WHOLE)
    assert operator.whole
    assert check_outputs(operator, {"x": X}, SIZES, answer(X), rows).finding is None
    wrong = answer(X)
    wrong["doubled"][6, 0] += 1
    finding = check_outputs(operator, {"x": X}, SIZES, wrong, rows).finding
    assert finding is not None
    assert finding.status is Status.WRONG_VALUES


def test_whole_outputs_are_compared_whole_where_there_is_no_checker(tmp_path: Path) -> None:
    text = ORACLE.replace("pairs = index[index % 2 == 0] // 2", 'pairs = torch.arange(sizes["count"] // 2)')
    operator = toy(tmp_path, text + "\n\nWHOLE = True\n")
    assert check_outputs(operator, {"x": X}, SIZES, answer(X), torch.tensor([0])).finding is None
    wrong = answer(X)
    wrong["pairs"][3, 2] += 1
    finding = check_outputs(operator, {"x": X}, SIZES, wrong, torch.tensor([0])).finding
    assert finding is not None
    assert finding.message.startswith("pairs[3, 2]")
