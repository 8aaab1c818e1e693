"""A deployed kernel against an operator: on inputs of the operator, judged by the check of gate 2."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import pytest
import torch
from torch import Tensor

from roofmark import operators
from roofmark.evaluate.correctness import check_outputs
from roofmark.evaluate.lint.cases import model_of, named, own
from roofmark.operators import Operator, Sizes
from roofmark.records import Shape

SEED = 20261130
WEIGHTS = 1 << 25  # elements
CPU, INTERPRETER = "CPU", "CPU, Triton interpreter"

Run = Callable[[Mapping[str, Tensor], Sizes], Any]


@dataclass(frozen=True)
class Kernel:
    """A deployed implementation: whose it is (`vllm`, `sglang` or `torch`), its name there, and on what it runs."""

    package: str
    name: str
    device: str


@dataclass(frozen=True)
class Row:
    """How one kernel did on one set of sizes.

    share: the largest difference from the oracle, as a share of what is allowed; None where a checker judges.
    apart: for each output the largest difference from the reference's answer; for fp8 codes, and integers, the
        share of elements that differ.
    """

    operator: str
    kernel: Kernel
    sizes: Sizes
    stand_in: bool
    share: float | None
    apart: Mapping[str, float]
    wall_s: float


def cases(name: str, *, stand_in: bool = False, only: Callable[[Sizes], bool] | None = None, **free: Any) -> Any:
    """Parametrises `case` with each distinct set of fixed dims of an operator, the `free` dims lowered.

    A callable gives a free dim from its published value. stand_in: widths as in the shape's stand-in.
    """
    found: dict[str, Any] = {}
    for shape in operators.load(name).shapes:
        small = (shape.stand_in or {}) if stand_in else {}
        before = {**shape.sizes, **small}
        sizes = before | {key: value(before[key]) if callable(value) else value for key, value in free.items()}
        label = json.dumps(sizes, sort_keys=True)
        if label not in found and (only is None or only(sizes)):
            found[label] = pytest.param(Case(name, shape, sizes, bool(small)), id=f"{name}-{shape.shape_id}")
    return pytest.mark.parametrize("case", list(found.values()))


@dataclass(frozen=True)
class Case:
    """An operator at some sizes."""

    operator: str
    shape: Shape
    sizes: Sizes
    stand_in: bool


Agrees = Callable[[Kernel, Case, Run], None]


def compare(kernel: Kernel, case: Case, run: Run) -> Row:
    """How `run`, which calls the kernel, did; fails the test where the kernel or the reference is wrong."""
    operator = operators.load(case.operator)
    inputs = operator.make_inputs(case.sizes, seed=SEED, device="cpu")
    model = model_of(operator.reference_text(), case.shape, case.sizes)
    with torch.no_grad():
        reference = named(operator, model(*own(operator, inputs).values()))
        started = time.monotonic()
        made = run(_copies(operator, inputs), case.sizes)
        wall_s = time.monotonic() - started
    answer = named(operator, made)
    for who, outputs in (("the reference", reference), (kernel.name, answer)):
        check = check_outputs(operator, inputs, case.sizes, outputs, None)
        assert check.finding is None, f"{who}: {check.finding.message}"
    share = None if operator.checker else check.error_ratio
    apart = {name: _apart(out, reference[name]) for name, out in answer.items()}
    return Row(case.operator, kernel, case.sizes, case.stand_in, share, apart, round(wall_s, 2))


def _copies(operator: Operator, inputs: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Inputs of the kernel's own; large ones, which are weights, as they are."""
    return {key: x if x.numel() > WEIGHTS else x.clone() for key, x in own(operator, inputs).items()}


def _apart(out: Tensor, other: Tensor) -> float:
    if out.dtype.itemsize == 1 or not out.is_floating_point():
        return float((out.to(torch.float64) != other.to(torch.float64)).double().mean())
    wide, reference = out.double(), other.double()
    difference = torch.where(wide == reference, 0.0, (wide - reference).abs())  # inf - inf is not 0
    return float(difference.max())
