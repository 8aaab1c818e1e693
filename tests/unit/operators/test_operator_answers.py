"""Right answers pass and wrong ones fail, on every shape: by default on the smallest and the largest of each."""

from __future__ import annotations

import random
from collections.abc import Mapping

import pytest
import torch
from operator_check import NAMES, SEED, Outputs, chosen, extremes, judge, reference, run, small_sizes
from operator_zoo import RIGHT, SPECIAL, WRONG, WRONG_ON_CORNERS, spoilt
from torch import Tensor, nn

from roofmark import operators
from roofmark.evaluate.correctness import SAMPLE_ROWS
from roofmark.operators import Operator, Sizes

SHAPES = [parameter for name in NAMES for parameter in extremes(name)]
CORNERS = [
    (name, corner) for name in NAMES for corner in operators.load(name).corners(operators.load(name).shapes[0].sizes)
]


def _named(right: Mapping[str, Tensor], made: Tensor | tuple[Tensor, ...]) -> Outputs:
    return dict(zip(right, made if isinstance(made, tuple) else (made,), strict=True))


def _check_reference(operator: Operator, model: nn.Module, inputs: dict[str, Tensor], sizes: Sizes) -> None:
    before = {name: value.clone() for name, value in inputs.items()}
    outputs = run(model, operator, inputs)
    for spec in operator.outputs(sizes):
        assert outputs[spec.name].shape == spec.shape
        assert str(outputs[spec.name].dtype) == f"torch.{spec.dtype}"
        assert outputs[spec.name].isfinite().all()
    for name, value in inputs.items():
        assert torch.equal(before[name].view(torch.uint8), value.view(torch.uint8)), name
    judged = judge(operator, inputs, sizes)
    assert judged.fault({name: value[judged.index] for name, value in outputs.items()}) == ""


@pytest.mark.parametrize(("name", "shape_id"), SHAPES)
def test_the_reference_is_right_on_seeds_and_neighbours(name: str, shape_id: str) -> None:
    operator = operators.load(name)
    shape = operator.shape(shape_id)
    sizes = small_sizes(shape)
    model = reference(operator, shape)
    first, second = operator.neighbours(sizes, random.Random(5))
    for seed, these in ((0, sizes), (2**128 - 1, first), (7, second)):
        _check_reference(operator, model, operator.make_inputs(these, seed=seed, device="cpu"), these)


@pytest.mark.parametrize(("name", "corner"), CORNERS)
def test_the_reference_is_right_on_a_corner_case(name: str, corner: str) -> None:
    operator = operators.load(name)
    for shape in (operator.shapes[0], operator.shapes[-1]):
        sizes = operator.corners(small_sizes(shape))[corner]
        inputs = operator.make_corner(corner, sizes, seed=SEED, device="cpu")
        _check_reference(operator, reference(operator, shape), inputs, sizes)


@pytest.mark.parametrize(("name", "shape_id"), SHAPES)
def test_wrong_answers_fail(name: str, shape_id: str) -> None:
    operator = operators.load(name)
    shape = operator.shape(shape_id)
    sizes = small_sizes(shape)
    inputs = operator.make_inputs(sizes, seed=SEED, device="cpu")
    judged = judge(operator, inputs, sizes, 33)
    few = chosen(operator, inputs, judged.index)
    outputs = run(reference(operator, shape), operator, inputs)
    right = {key: value[judged.index] for key, value in outputs.items()}
    wrong = spoilt(right)
    for title, candidate in WRONG[name].items():
        made = candidate(few, sizes)
        if made is not None:
            wrong[title] = _named(right, made)
    assert [title for title, rows in wrong.items() if not judged.fault(rows)] == []


@pytest.mark.parametrize(("name", "corner", "title"), list(WRONG_ON_CORNERS))
def test_wrong_answers_that_only_a_corner_case_shows_fail_there(name: str, corner: str, title: str) -> None:
    operator = operators.load(name)
    shown = 0
    for shape in (operator.shapes[0], operator.shapes[-1]):
        sizes = operator.corners(small_sizes(shape))[corner]
        inputs = operator.make_corner(corner, sizes, seed=SEED, device="cpu")
        judged = judge(operator, inputs, sizes)
        made = WRONG_ON_CORNERS[name, corner, title](chosen(operator, inputs, judged.index), sizes)
        if made is not None:
            shown += 1
            assert judged.fault(_named(judged.expected, made)) != ""
    assert shown


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("seed", [SEED, SEED + 1])
def test_a_sampled_check_of_a_full_size_meets_all_special_rows(name: str, seed: int) -> None:
    """A kernel that is right on them at small sizes only fails in every call, also where few rows are looked at."""
    operator = operators.load(name)
    sizes = small_sizes(max(operator.shapes, key=lambda s: operator.work(s.sizes).bytes_total))
    inputs = operator.make_inputs(sizes, seed=seed, device="cpu")
    judged = judge(operator, inputs, sizes, SAMPLE_ROWS)
    few = chosen(operator, inputs, judged.index)
    for title, candidate in SPECIAL[name].items():
        made = candidate(few, sizes)
        assert made is not None, title
        assert judged.fault(_named(judged.expected, made)) != "", title


@pytest.mark.parametrize(("name", "shape_id"), SHAPES)
def test_right_answers_by_another_way_pass(name: str, shape_id: str) -> None:
    operator = operators.load(name)
    sizes = small_sizes(operator.shape(shape_id))
    inputs = operator.make_inputs(sizes, seed=SEED + 1, device="cpu")
    judged = judge(operator, inputs, sizes)
    for title, candidate in RIGHT[name].items():
        made = candidate(chosen(operator, inputs, judged.index), sizes)
        assert made is not None
        assert judged.fault(_named(judged.expected, made)) == "", title
