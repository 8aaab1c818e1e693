"""The comparison with an oracle, and which rows it looks at."""

from __future__ import annotations

import random

import pytest
import torch
from torch import Tensor

from roofmark.evaluate.correctness import SAMPLE_ROWS, choose_rows, compare
from roofmark.operators.expected import Expected
from roofmark.records import Status, Work

INF, NAN = float("inf"), float("nan")


def values(*numbers: float, dtype: torch.dtype = torch.float64) -> Tensor:
    return torch.tensor([numbers], dtype=dtype)


def said(out: Tensor, want: Tensor, bound: float | Tensor | None = 1.0, *, replaces: bool = True) -> Status | None:
    """The status of a comparison; the bound alone decides unless asked otherwise."""
    if isinstance(bound, float):
        bound = torch.full(want.shape, bound, dtype=torch.float64)
    finding, _ = compare("y", out, Expected(want, bound, replaces), torch.arange(len(out)))
    return finding.status if finding else None


@pytest.mark.parametrize(
    ("got", "want", "status"),
    [
        (INF, INF, None),
        (-INF, -INF, None),
        (NAN, NAN, None),
        (INF, -INF, Status.NOT_FINITE),
        (INF, 1.0, Status.NOT_FINITE),
        (1.0, INF, Status.NOT_FINITE),
        (NAN, 1.0, Status.NOT_FINITE),
        (1.0, NAN, Status.NOT_FINITE),
        (NAN, INF, Status.NOT_FINITE),
        (INF, NAN, Status.NOT_FINITE),
    ],
)
def test_infinities_and_nan_stand_where_they_should(got: float, want: float, status: Status | None) -> None:
    assert said(values(got, 0.5), values(want, 0.5)) is status


def test_a_wrong_value_beside_a_right_infinity_is_found() -> None:
    assert said(values(INF, 3.0), values(INF, 0.0)) is Status.WRONG_VALUES


def test_the_bound_is_reached_but_not_passed() -> None:
    assert said(values(2.0), values(1.0), 1.0) is None
    assert said(values(2.0 + 1e-9), values(1.0), 1.0) is Status.WRONG_VALUES


@pytest.mark.parametrize("bound", [NAN, 0.0, -1.0])
def test_a_bound_that_is_no_licence_allows_nothing(bound: float) -> None:
    assert said(values(1.5), values(1.0), bound) is Status.WRONG_VALUES


def test_a_bound_of_zero_takes_the_exact_value() -> None:
    assert said(values(1.0), values(1.0), 0.0) is None


def test_both_tolerances_hold_unless_the_operator_s_replaces_the_other() -> None:
    out, want = values(1.2, dtype=torch.float32), values(1.0)
    assert said(out, want, 1.0, replaces=True) is None
    assert said(out, want, 1.0, replaces=False) is Status.WRONG_VALUES  # 0.2 > 1e-2 + 5e-2
    assert said(values(1.05, dtype=torch.float32), want, 1.0, replaces=False) is None


def test_integers_are_exact() -> None:
    want = torch.tensor([[1, 2, 3]])
    assert said(torch.tensor([[1, 2, 3]], dtype=torch.int32), want, None) is None
    assert said(torch.tensor([[1, 2, 4]], dtype=torch.int32), want, None) is Status.WRONG_VALUES


@pytest.mark.parametrize("shape", [(0, 4), (3, 0)])
def test_nothing_is_right(shape: tuple[int, ...]) -> None:
    empty = torch.empty(shape, dtype=torch.float64)
    assert said(empty.float(), empty, empty) is None


def test_the_message_names_the_row_of_the_whole() -> None:
    want = torch.zeros((2, 3), dtype=torch.float64)
    out = want.clone()
    out[1, 2] = 9.0
    finding, ratio = compare("y", out, Expected(want, torch.ones_like(want), True), torch.tensor([5, 40]))
    assert finding is not None
    assert "y[40, 2] is 9, should be 0; 1 of 6" in finding.message
    assert ratio == 9.0


def work(flops: float, nbytes: float) -> Work:
    return Work(flops={"float32": int(flops)}, bytes_read=int(nbytes), bytes_written=0)


@pytest.mark.parametrize(("row", "column"), [(0, 0), (0, 6), (1, 1), (1, 6)])
@pytest.mark.parametrize("exact", [True, False])
def test_large_rows_are_compared_in_pieces(row: int, column: int, exact: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("roofmark.evaluate.correctness.CHUNK_ELEMENTS", {"cpu": 4})
    want = torch.arange(14, dtype=torch.float64).view(2, 7)
    expected = Expected(want, None if exact else torch.full_like(want, 1e-3))
    right, wrong = want.float(), want.float()
    wrong[row, column] += 1
    assert compare("y", right, expected, torch.tensor([5, 40]))[0] is None
    finding, ratio = compare("y", wrong, expected, torch.tensor([5, 40]))
    assert finding is not None
    assert finding.message.startswith(f"y[{(5, 40)[row]}, {column}] is {7 * row + column + 1}, should be")
    assert ratio > 1


def test_all_rows_are_looked_at_where_that_is_affordable() -> None:
    rng = random.Random(1)
    assert choose_rows(100, work(1e15, 1e15), "cpu", rng, thorough=False) is None
    assert choose_rows(10_000, work(1e6, 1e6), "cpu", rng, thorough=True) is None


@pytest.mark.parametrize("thorough", [True, False])
def test_otherwise_the_ends_the_middle_and_many_by_chance(thorough: bool) -> None:
    rows = 10_000
    picked = choose_rows(rows, work(1e12, 1e9), "cpu", random.Random(2), thorough=thorough)
    assert picked is not None
    chosen = picked.tolist()
    assert chosen == sorted(set(chosen))
    assert {0, rows // 2, rows - 1} <= set(chosen)
    assert SAMPLE_ROWS <= len(chosen) <= rows // 2 + 3
    other = choose_rows(rows, work(1e12, 1e9), "cpu", random.Random(3), thorough=thorough)
    assert other is not None
    assert chosen != other.tolist()
