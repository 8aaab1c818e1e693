"""Right answers by another way, which must pass, and the oracle asked otherwise, which must say the same."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from roofmark.evaluate.lint.cases import Case, Trial, judge, model_of, view_of
from roofmark.evaluate.lint.wrong import answer, asked, cut, few
from roofmark.evaluate.steps import told
from roofmark.operators import Sizes
from roofmark.operators.expected import Expected
from roofmark.operators.zoo import Candidate

IN_FLOAT64, UNROUNDED = "in float64", "in float64, nothing rounded inside"


def pass_rows(trial: Trial, case: Case) -> None:
    """Every answer of RIGHT passes."""
    _pass_all(trial, case, trial.zoo.right, rows=bool(trial.zoo.rows))


def pass_whole(trial: Trial, case: Case) -> None:
    """`second`, and the reference in float64, pass."""
    made: dict[str, Candidate] = {} if trial.zoo.second is None else {"second": trial.zoo.second}
    model = model_of(_widened(trial.operator.reference_text()), trial.shape, case.sizes)
    kinds = [getattr(torch, spec.dtype) for spec in trial.operator.outputs(case.sizes)]

    def widened(*inputs: Tensor) -> tuple[Tensor, ...]:
        outputs = model(*inputs)
        outputs = outputs if isinstance(outputs, tuple) else (outputs,)
        return tuple(out.to(kind) for out, kind in zip(outputs, kinds, strict=True))

    def unrounded(i: Mapping[str, Tensor], s: Sizes) -> tuple[Tensor, ...]:
        return widened(*(tensor.double() if tensor.is_floating_point() else tensor for tensor in i.values()))

    made |= {IN_FLOAT64: lambda i, s: widened(*i.values()), UNROUNDED: unrounded}
    _pass_all(trial, case, made, rows=False)


def _widened(text: str) -> str:
    """The reference with float64 wherever it says float32."""
    return text.replace(".float()", ".double()").replace("torch.float32", "torch.float64")


def _pass_all(trial: Trial, case: Case, candidates: Mapping[str, Candidate], *, rows: bool) -> None:
    view = view_of(trial, case, rows=rows)
    right = cut(trial, case, case.outputs) if rows else case.outputs
    inputs = few(trial, case) if rows else case.inputs
    for title, candidate in candidates.items():
        label = f"{case.name}: {title}"
        if title in trial.zoo.excused:
            trial.not_run[label] = trial.zoo.excused[title]
            continue
        with trial.guarded(case.name, title):
            made = _made(trial, label, title, candidate, inputs, case)
            if made is None:
                continue
            check = judge(view, case, answer(made, right))
            if check.finding is not None:
                trial.fault(case.name, title, f"is right and fails: {check.finding.message}")
            else:
                trial.passed.append(label)
                trial.worst_ratio = max(trial.worst_ratio, check.error_ratio)


def _made(trial: Trial, label: str, title: str, candidate: Candidate, inputs: Mapping[str, Tensor], case: Case) -> Any:
    """The answer; None, with the reason noted, where there is none or torch can't run it in float64."""
    try:
        made = asked(trial, candidate, inputs, case)()
    except (RuntimeError, TypeError, NotImplementedError, ValueError) as error:
        if title not in (IN_FLOAT64, UNROUNDED):
            raise
        trial.not_run[label] = told(error)
        return None
    if made is None:
        trial.not_run[label] = "does not apply on these inputs"
    return made


def check_rows_alone(trial: Trial, case: Case) -> None:
    """The oracle says of a few rows alone what it says of them among all."""
    if trial.operator.whole:
        return
    every = torch.arange(case.rows, device=trial.device)
    some = every[:: max(1, case.rows // 5)]
    wide = view_of(trial, case, rows=False).expected_rows(case.inputs, case.sizes, every)
    narrow = trial.operator.expected_rows(case.inputs, case.sizes, some)
    of_all, of_some = (trial.operator.rows_of(case.sizes, index) for index in (every, some))
    for key, expected in narrow.items():
        if not _agree(expected, wide[key], torch.isin(of_all[key], of_some[key])):
            trial.fault(case.name, "row oracle", f"says otherwise of {key} where it is asked for a few rows alone")


def _agree(some: Expected, every: Expected, where: Tensor) -> bool:
    """Whether values agree far within the bound, and bounds among themselves."""
    value = every.value[where]
    if some.bound is None or every.bound is None:
        return some.bound is every.bound and torch.equal(some.value, value)
    bound = every.bound[where]
    room = bound * 1e-3 + value.nan_to_num(0.0, 0.0, 0.0).abs() * 1e-12
    close = (some.value == value) | ((some.value - value).abs() <= room)
    return bool(close.all()) and torch.allclose(some.bound, bound, rtol=1e-3, atol=0.0, equal_nan=True)
