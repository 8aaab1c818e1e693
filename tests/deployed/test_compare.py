"""The comparison itself: a wrong kernel fails, and what is written can be read back."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from compare import CPU, Case, Kernel, cases, compare
from record import keep
from torch.nn import functional

KERNEL = Kernel("torch", "nn.functional.rms_norm", CPU)


@cases("rms_norm", only=lambda sizes: sizes["hidden_size"] == 128, token_count=9)
def test_a_kernel_that_leaves_the_weight_out_fails(case: Case) -> None:
    def run(inputs, sizes):
        return functional.rms_norm(inputs["x"], inputs["weight"].shape, None, sizes["eps"])

    with pytest.raises(AssertionError, match="rms_norm: y"):
        compare(KERNEL, case, run)


@cases("rms_norm", only=lambda sizes: sizes["hidden_size"] == 128, token_count=9)
def test_rows_of_another_kernel_stay_and_the_same_are_replaced(case: Case, tmp_path: Path) -> None:
    def run(inputs, sizes):
        return functional.rms_norm(inputs["x"], inputs["weight"].shape, inputs["weight"], sizes["eps"])

    path, other = tmp_path / "table.json", Kernel("torch", "another", CPU)
    keep(path, [compare(KERNEL, case, run)])
    keep(path, [compare(KERNEL, case, run), compare(other, case, run)])
    rows = json.loads(path.read_text(encoding="utf-8"))["rows"]
    assert [row["kernel"]["name"] for row in rows] == ["another", "nn.functional.rms_norm"]
    assert all(0 < row["share"] <= 1 and row["sizes"]["token_count"] == 9 for row in rows)
