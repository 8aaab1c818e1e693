"""Right answers pass and wrong ones fail, for every operator: by default on one shape of little work."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from operator_check import telling

from roofmark import operators
from roofmark.evaluate.lint import lint
from roofmark.operators import Operator
from roofmark.records import Shape


def _faults(operator: Operator, shapes: Sequence[Shape]) -> list[str]:
    (proof,) = lint([(operator, shapes)], device="cpu", watch=lambda _: None)
    assert all(shape.killed and shape.passed for shape in proof.shapes)
    return [fault.line for fault in proof.faults]


@pytest.mark.parametrize("name", operators.names())
def test_an_operator_is_proven_on_a_shape_that_tells(name: str) -> None:
    operator = operators.load(name)
    assert _faults(operator, [telling(operator)]) == []


@pytest.mark.slow
@pytest.mark.parametrize("name", operators.names())
def test_an_operator_is_proven_on_every_shape(name: str) -> None:
    operator = operators.load(name)
    assert _faults(operator, operator.shapes) == []
