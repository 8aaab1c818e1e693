"""Wrong answers, which must fail: the operator's own, and those that any operator can meet."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Literal

import torch
from torch import Tensor

from roofmark.evaluate.correctness import SAMPLE_ROWS
from roofmark.evaluate.integrity import same_bytes
from roofmark.evaluate.lint.cases import MAIN, Case, Trial, judge, make_case, own, some_rows, view_of
from roofmark.evaluate.lint.view import View, looser
from roofmark.operators import zoo
from roofmark.operators.zoo import Candidate, Outputs

FACTOR = 10.0
# seeds of a shape that gate 2 looks at, and on how many of them a wrong answer may be right by chance
SEEDS, MOST_PASSES = 5, 2
ANOTHER = "an earlier call's answer"

Mistake = tuple[str, Callable[[], Any]]


@dataclass(frozen=True)
class Outcome:
    """What became of a wrong answer; `ratio` is its largest error as a share of what is allowed, where it has one."""

    kind: Literal["killed", "passed", "same", "not run"]
    ratio: float | None = None
    outputs: Outputs | None = None


def kill_all(trial: Trial, main: Case, other: Case) -> None:
    """Every wrong answer fails on the shape, and each tolerance is the least that it can be, within ten times."""
    view = view_of(trial, main, rows=bool(trial.zoo.rows))
    right = cut(trial, main, main.outputs)
    tighter = looser(trial.operator, trial.zoo, view, main.inputs, main.sizes, main.index, FACTOR)
    trial.sharp = dict.fromkeys(tighter)
    if view.checker and not tighter and any(value.is_floating_point() for value in right.values()):
        trial.fault(MAIN, "TOLERANCES", "zoo.py names no constant of oracle.py by which its checker is lenient")
    survivors: dict[str, float | None] = {}
    for title, make in _mistakes(trial, main, other, right):
        if title in trial.zoo.excused:
            trial.not_run[title] = trial.zoo.excused[title]
            continue
        with trial.guarded(MAIN, title):
            found = _try(view, main, right, make)
            if found.kind == "passed":
                survivors[title] = found.ratio
                continue
            _note(trial, main, title, found)
            if found.outputs is not None:
                _sharpen(trial, title, tighter, main, found.outputs)
    if survivors:
        _try_again(trial, main, survivors)
    _kill_special(trial, main)


def _try_again(trial: Trial, main: Case, survivors: Mapping[str, float | None]) -> None:
    """A wrong answer that one seed lets pass fails on most of as many as gate 2 looks at."""
    passes = dict.fromkeys(survivors, 1)
    for number in range(3, 2 + SEEDS):
        case = make_case(trial, f"seed {number}", main.sizes)
        if case is None:
            return
        view, right = view_of(trial, case, rows=bool(trial.zoo.rows)), cut(trial, case, case.outputs)
        for title, make in _mistakes(trial, case, main, right):
            if title in survivors:
                found = _try(view, case, right, make)
                passes[title] += found.kind != "killed"
                if found.kind == "killed":
                    trial.killed[title] = found.ratio
    for title, count in passes.items():
        if count > MOST_PASSES:
            trial.killed.pop(title, None)
            share = f"{survivors[title] or 0:.3g} of what is allowed on the first"
            trial.fault(MAIN, title, f"is wrong and passes on {count} of {SEEDS} seeds, with {share}")
        else:
            trial.late[title] = f"passes on {count} of {SEEDS} seeds"


def _kill_special(trial: Trial, main: Case) -> None:
    """Mistakes on special rows alone: met wherever the evaluator samples rows of a large answer.

    It samples anew for every seed, so a mistake must show on one of as many samples.
    """
    open_titles, sampled = dict(trial.zoo.special), main.rows > SAMPLE_ROWS
    for _ in range(SEEDS if sampled else 1):
        index = some_rows(main.rows, SAMPLE_ROWS, trial.seeds.next()) if sampled else main.index
        case = replace(main, index=index, said={})
        view = view_of(trial, case, rows=bool(trial.zoo.rows))
        right, inputs = cut(trial, case, case.outputs), few(trial, case)
        for title, candidate in tuple(open_titles.items()):
            with trial.guarded(MAIN, title):
                found = _try(view, case, right, asked(trial, candidate, inputs, case))
                if found.kind in ("same", "not run") and sampled:
                    continue
                _note(trial, case, title, found)
            del open_titles[title]
        if not open_titles:
            return
    for title in open_titles:
        text = f"is no mistake on {SEEDS} samples of {SAMPLE_ROWS} rows of {main.rows}: no row is special in that way"
        trial.fault(MAIN, title, text)


def kill_on_corner(trial: Trial, case: Case) -> None:
    """The mistakes that this corner case must show."""
    corner = case.name.removeprefix("corner:")
    mine = {title: made for (named, title), made in trial.zoo.wrong_on_corners.items() if named == corner}
    if not mine:
        return
    view = view_of(trial, case, rows=bool(trial.zoo.rows))
    right, inputs = cut(trial, case, case.outputs), few(trial, case)
    for title, candidate in mine.items():
        with trial.guarded(case.name, title):
            found = _try(view, case, right, asked(trial, candidate, inputs, case))
            _note(trial, case, f"{corner}: {title}", found)


def _try(view: View, case: Case, right: Outputs, make: Callable[[], Any]) -> Outcome:
    """Asks for a wrong answer and judges it."""
    made = make()
    if made is None:
        return Outcome("not run")
    outputs = answer(made, right)
    if all(_equal(outputs[key], right[key]) for key in right):
        return Outcome("same")
    check = judge(view, case, outputs)
    ratio = check.error_ratio if check.error_ratio < float("inf") else None
    return Outcome("passed", ratio) if check.finding is None else Outcome("killed", ratio, outputs)


def _equal(one: Tensor, other: Tensor) -> bool:
    """Whether nothing tells two tensors apart: bit by bit, or but for the sign of zero."""
    return same_bytes(one, other.contiguous()) or bool((one == other).all())


def _note(trial: Trial, case: Case, title: str, found: Outcome) -> None:
    """Notes what became of a wrong answer; that it passed is a fault."""
    if found.kind == "killed":
        trial.killed[title] = found.ratio
    elif found.kind == "same":
        trial.same.append(title)
    elif found.kind == "not run":
        trial.not_run[title] = "no mistake on these inputs"
    else:
        trial.fault(case.name, title, f"is wrong and passes, with {found.ratio or 0:.3g} of what is allowed")


def _sharpen(trial: Trial, title: str, views: Mapping[str, View], case: Case, outputs: Outputs) -> None:
    """Notes each tolerance under which a killed answer would pass were it ten times looser."""
    ratio = trial.killed[title]
    for key, view in views.items():
        near = ratio is None if view.checker else ratio is not None and ratio < FACTOR
        if near and trial.sharp[key] is None and judge(view, case, outputs).finding is None:
            trial.sharp[key] = title


def _mistakes(trial: Trial, main: Case, other: Case, right: Outputs) -> Iterator[Mistake]:
    """Wrong answers with their titles, one at a time."""
    inputs = few(trial, main)
    for title, candidate in trial.zoo.wrong.items():
        yield title, asked(trial, candidate, inputs, main)
    for title, outputs in zoo.generic(right, inputs):
        yield title, partial(dict, outputs)
    for title, outputs in zoo.mixed(right, cut(trial, main, other.outputs), ANOTHER):
        yield title, partial(dict, outputs)
    yield from _stale(trial, main, other)


def _stale(trial: Trial, main: Case, other: Case) -> Iterator[Mistake]:
    """The reference's answer with one floating input of an earlier call, where there is more than one input."""
    differ = [key for key, tensor in main.inputs.items() if not same_bytes(tensor, other.inputs[key])]
    for key in differ if len(differ) > 1 else ():
        if main.inputs[key].is_floating_point():
            yield f"{key} of an earlier call", partial(_forward, trial, main, {key: other.inputs[key]})


def _forward(trial: Trial, case: Case, stale: Outputs) -> Outputs:
    """The reference's answer where some inputs are others."""
    return cut(trial, case, trial.forward({**case.inputs, **stale}))


def asked(trial: Trial, candidate: Candidate, inputs: Mapping[str, Tensor], case: Case) -> Callable[[], Any]:
    """A candidate's answer, on inputs of its own where the contract lets it change them."""

    def make() -> Any:
        with torch.device(trial.device):
            return candidate(own(trial.operator, inputs), case.sizes)

    return make


def answer(made: Any, right: Outputs) -> Outputs:
    """An answer by the outputs' names; `ValueError` where shape or type make it none."""
    answers = made.values() if isinstance(made, dict) else made if isinstance(made, tuple) else (made,)
    outputs = {name: out.contiguous() for name, out in zip(right, answers, strict=True)}
    for name, out in outputs.items():
        if out.shape != right[name].shape or out.dtype != right[name].dtype:
            want = f"{tuple(right[name].shape)} {right[name].dtype}"
            raise ValueError(f"{name} is {tuple(out.shape)} {out.dtype}, should be {want}")
    return outputs


def few(trial: Trial, case: Case) -> dict[str, Tensor]:
    """The inputs, those that have a row for each row of the output cut to the chosen ones."""
    index = case.index.to(trial.device)
    dims = {key: trial.zoo.row_dims.get(key, 0) for key in trial.zoo.rows}
    return {key: t.index_select(dims[key], index) if key in dims else t for key, t in case.inputs.items()}


def cut(trial: Trial, case: Case, outputs: Outputs) -> Outputs:
    """The chosen rows of outputs; all of them where rows are coupled."""
    if not trial.zoo.rows:
        return outputs
    index = case.index.to(trial.device)
    return {key: out.index_select(0, index) for key, out in outputs.items()}
