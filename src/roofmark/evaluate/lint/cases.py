"""The reference on one set of inputs: drawn as its contract says, and right by the check of gate 2."""

from __future__ import annotations

import inspect
import random
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

from roofmark.errors import ProblemError
from roofmark.evaluate.correctness import Check, check_outputs, choose_rows
from roofmark.evaluate.integrity import contiguous, same_bytes
from roofmark.evaluate.lint.memory import Peak
from roofmark.evaluate.lint.proof import Fault
from roofmark.evaluate.lint.view import Said, View
from roofmark.evaluate.seeds import Seeds
from roofmark.evaluate.steps import told
from roofmark.operators import Operator, Sizes
from roofmark.operators.zoo import Outputs, Zoo
from roofmark.records import Shape

MAIN, OTHER = "shape", "seed 2"
# rows looked at in one answer: at full size the oracle of all rows would take minutes
ROWS, FEW_ROWS = {"cpu": 33, "cuda": 257}, 65
# inputs up to this size are drawn twice in corner cases too, to see that they follow from the seed
REDRAWN_BYTES = 1 << 24


@dataclass(frozen=True)
class Case:
    """Inputs, the right outputs (the reference's, which have passed) and which rows are looked at."""

    name: str
    sizes: Sizes
    inputs: dict[str, Tensor]
    outputs: Outputs
    index: Tensor
    said: Said = field(default_factory=dict)

    @property
    def rows(self) -> int:
        """Rows of the first output."""
        return int(next(iter(self.outputs.values())).shape[0])


@dataclass
class Trial:
    """A shape on trial and what has been found."""

    operator: Operator
    shape: Shape
    zoo: Zoo
    device: str
    seeds: Seeds
    model: nn.Module = field(default_factory=nn.Module)
    faults: list[Fault] = field(default_factory=list)
    held: list[str] = field(default_factory=list)
    passed: list[str] = field(default_factory=list)
    killed: dict[str, float | None] = field(default_factory=dict)
    late: dict[str, str] = field(default_factory=dict)
    same: list[str] = field(default_factory=list)
    not_run: dict[str, str] = field(default_factory=dict)
    sharp: dict[str, str | None] = field(default_factory=dict)
    worst_ratio: float = 0.0
    figures: dict[str, Any] = field(default_factory=dict)

    def fault(self, case: str, title: str, message: str) -> None:
        """Notes what does not hold."""
        name, shape_id = self.operator.name, self.shape.shape_id
        self.faults.append(Fault(operator=name, shape_id=shape_id, case=case, title=title, message=message))

    @contextmanager
    def guarded(self, case: str, title: str) -> Iterator[None]:
        """A context in which whatever the operator's files raise becomes a fault."""
        try:
            with torch.no_grad():
                yield
        except Exception as error:  # noqa: BLE001 - what fails is a fault of the operator's
            self.fault(case, title, told(error))

    def forward(self, inputs: Mapping[str, Tensor]) -> Outputs:
        """The reference's outputs by name; inputs that it may change are copied for it."""
        return named(self.operator, self.model(*own(self.operator, inputs).values()))


def view_of(trial: Trial, case: Case, *, rows: bool) -> View:
    """The operator's oracle on a case, with its memory; with `rows`, of the chosen rows alone."""
    return View.of(trial.operator, case.index if rows else None, said=case.said)


def judge(view: View, case: Case, outputs: Outputs) -> Check:
    """What gate 2 says of an answer: of the chosen rows alone, or of a whole one with those looked at."""
    return check_outputs(view, case.inputs, case.sizes, outputs, None if view.rows is not None else case.index)


def model_of(text: str, shape: Shape, sizes: Sizes) -> nn.Module:
    """The `Model` of a reference's text, made for these sizes; `ProblemError` where that is no Python."""
    namespace: dict[str, Any] = {"__name__": "reference"}
    try:
        code = compile(text, f"{shape.operator}/reference.py", "exec")
    except SyntaxError as error:
        raise ProblemError(f"{shape.operator}/reference.py is no Python: {error}") from error
    exec(code, namespace)
    model: nn.Module = namespace["Model"](**{key: sizes[key] for key in shape.init})
    return model


def named(operator: Operator, made: Any) -> Outputs:
    """What `forward` returned, by the outputs' names."""
    return dict(zip(operator.spec.outputs, made if isinstance(made, tuple) else (made,), strict=True))


def own(operator: Operator, inputs: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The inputs, those copied that the contract lets a forward change."""
    mutates = operator.spec.legality.mutates
    return {key: tensor.clone() if key in mutates else tensor for key, tensor in inputs.items()}


def some_rows(count: int, most: int, seed: int) -> Tensor:
    """All rows, or `most` of them, the first and the last among them."""
    if count <= most:
        return torch.arange(count)
    return torch.tensor(sorted({0, count - 1, *random.Random(seed).sample(range(1, count - 1), most - 2)}))


def make_case(trial: Trial, name: str, sizes: Sizes) -> Case | None:
    """The case with the reference's answer; None where that does not hold."""
    seed, before = trial.seeds.next(), len(trial.faults)
    with _timed(trial, "draw_s", name):
        inputs = _draw(trial, name, sizes, seed)
    nbytes = sum(tensor.numel() * tensor.dtype.itemsize for tensor in inputs.values())
    redrawn = name == MAIN or (name.startswith("corner:") and nbytes <= REDRAWN_BYTES)
    again = _draw(trial, name, sizes, seed) if redrawn else {key: tensor.clone() for key, tensor in inputs.items()}
    _check_inputs(trial, name, inputs, again)
    if len(trial.faults) > before:
        return None
    with _timed(trial, "reference_s", name):
        outputs = trial.forward(inputs)
    for key, tensor in inputs.items():
        if not same_bytes(tensor, again[key]):
            trial.fault(name, "reference", f"changes input {key}, which is not in legality.mutates")
    del again
    _check_kinds(trial, name, sizes, outputs)
    if len(trial.faults) > before:
        return None
    case = Case(name, sizes, inputs, outputs, _rows_to_look_at(trial, sizes, outputs, seed))
    with Peak(trial.device) as peak, _timed(trial, "judge_s", name):
        check = judge(view_of(trial, case, rows=False), case, outputs)
    if name == MAIN:
        trial.figures |= {"judge_bytes": peak.nbytes, "rows": len(case.index), "rows_of_shape": case.rows}
    if check.finding is not None:
        trial.fault(name, "reference", check.finding.message)
        return None
    trial.worst_ratio = max(trial.worst_ratio, check.error_ratio)
    trial.held.append(name)
    return case


def _rows_to_look_at(trial: Trial, sizes: Sizes, outputs: Outputs, seed: int) -> Tensor:
    """Some rows; where rows are coupled, so that a mistake may lie in a single one, as many as gate 2 looks at."""
    count = int(next(iter(outputs.values())).shape[0])
    if trial.operator.whole or trial.zoo.rows:
        few = count <= FEW_ROWS or trial.operator.whole
        return some_rows(count, count if few else ROWS[trial.device], seed)
    work, rng = trial.operator.work(sizes), random.Random(seed)
    rows = choose_rows(count, work, trial.device, rng, thorough=True)
    return torch.arange(count) if rows is None else rows


def _draw(trial: Trial, name: str, sizes: Sizes, seed: int) -> dict[str, Tensor]:
    if name.startswith("corner:"):
        return trial.operator.make_corner(name.removeprefix("corner:"), sizes, seed=seed, device=trial.device)
    return trial.operator.make_inputs(sizes, seed=seed, device=trial.device)


@contextmanager
def _timed(trial: Trial, what: str, case: str) -> Iterator[None]:
    """Notes the seconds that the main case took for `what`."""
    started = time.monotonic()
    yield
    if case == MAIN:
        if trial.device == "cuda":
            torch.cuda.synchronize()
        trial.figures[what] = round(time.monotonic() - started, 4)


def _check_inputs(trial: Trial, case: str, inputs: Mapping[str, Tensor], again: Mapping[str, Tensor]) -> None:
    """Inputs are named as `forward`'s parameters, lie on the device, contiguous, and follow from the seed."""
    parameters = inspect.signature(trial.model.forward).parameters
    needed = [name for name, one in parameters.items() if one.default is one.empty or name in inputs]
    if list(inputs) != needed:
        trial.fault(case, "inputs", f"are {', '.join(inputs)}; forward takes {', '.join(parameters)}")
    for key, tensor in inputs.items():
        if tensor.device.type != trial.device or not tensor.is_contiguous():
            trial.fault(case, f"input {key}", f"lies on {tensor.device} with strides {tensor.stride()}")
        elif not same_bytes(tensor, again[key]):
            trial.fault(case, f"input {key}", "differs under one seed")


def _check_kinds(trial: Trial, case: str, sizes: Sizes, outputs: Outputs) -> None:
    """Shape, dtype, device and strides are as declared; no NaN, and no infinity but -inf, which may be meant."""
    for spec in trial.operator.outputs(sizes):
        out = outputs[spec.name]
        got = (tuple(out.shape), str(out.dtype).removeprefix("torch."), out.device.type)
        if got != (spec.shape, spec.dtype, trial.device) or not contiguous(list(out.stride()), spec.shape):
            text = f"{spec.name} is {got} with strides {out.stride()}, should be {spec.shape} {spec.dtype}"
            trial.fault(case, "reference", text)
        elif out.is_floating_point() and any(_strange(part) for part in torch.split(out.reshape(-1), 1 << 24)):
            trial.fault(case, "reference", f"{spec.name} holds a NaN or an infinity")


def _strange(values: Tensor) -> bool:
    wide = values.float()
    return bool((wide.isnan() | (wide == torch.inf)).any())
