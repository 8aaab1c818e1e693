"""Did the candidate keep the rules? Kinds of outputs, untouched inputs, sealed answers, agreeing clocks."""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from roofmark.evaluate.correctness import Finding
from roofmark.evaluate.session import Call, Case, as_bytes
from roofmark.records import OutputSpec, Status

# the referee's clock against the runner's, per call and in relative terms; see docs/threats.md
REFEREE_SLACK_US = {"cpu": 100.0, "cuda": 20.0}
# a host_bound forward holds the host up, so that handing the outputs over starts only when it is done
HOST_BOUND_SLACK_US = 150.0
REFEREE_SLACK = {"cpu": 0.25, "cuda": 0.05}


def check_kinds(call: Call, outputs: Sequence[OutputSpec], device: str) -> Finding | None:
    """What is wrong with the things that a forward returned, before their values are looked at."""
    if len(call.kinds) != len(outputs):
        text = f"forward returned {len(call.kinds)} things, {len(outputs)} were asked for"
        return Finding(Status.WRONG_SHAPE_OR_DTYPE, text)
    for kind, spec in zip(call.kinds, outputs, strict=True):
        if "shape" not in kind:
            text = f"{spec.name} is a {kind.get('type')}, not a tensor"
            return Finding(Status.WRONG_SHAPE_OR_DTYPE, text)
        if kind.get("type") != "Tensor":
            text = f"{spec.name} is no plain torch.Tensor but {kind.get('type')}"
            return Finding(Status.RULE_BROKEN, text)
        for what, got, want in (
            ("shape", kind.get("shape"), list(spec.shape)),
            ("dtype", kind.get("dtype"), spec.dtype),
            ("device", kind.get("device"), device),
        ):
            if got != want:
                return Finding(Status.WRONG_SHAPE_OR_DTYPE, f"{spec.name} has {what} {got}, should be {want}")
        if not contiguous(kind.get("stride"), spec.shape):
            text = f"{spec.name} has strides {kind.get('stride')}, should be contiguous"
            return Finding(Status.WRONG_SHAPE_OR_DTYPE, text)
    return None


def contiguous(strides: object, shape: Sequence[int]) -> bool:
    """Whether `strides` are those of a contiguous tensor of `shape`."""
    if not isinstance(strides, list) or len(strides) != len(shape):
        return False
    if math.prod(shape) == 0:
        return True
    expected = 1
    for size, stride in zip(reversed(shape), reversed(strides), strict=True):
        if size != 1 and stride != expected:
            return False
        expected *= size
    return True


def check_inputs(case: Case, inputs: Mapping[str, Tensor], mutable: Sequence[str]) -> Finding | None:
    """Whether every input that the contract does not let change still holds what the referee wrote."""
    for name, shared in zip(case.input_names, case.inputs, strict=True):
        if name not in mutable and not same_bytes(shared.view, inputs[name]):
            return Finding(Status.RULE_BROKEN, f"input {name} was changed")
    return None


def check_sealed(case: Case, call: Call) -> Finding | None:
    """Whether outputs that are shared still hold what they held at the answer."""
    for shared, (name, taken) in zip(case.outputs, call.outputs.items(), strict=False):
        if not same_bytes(shared.view, taken):
            return Finding(Status.RULE_BROKEN, f"output {name} went on changing after the answer")
    return None


def same_bytes(left: Tensor, right: Tensor) -> bool:
    """Whether two tensors of one size hold the same bytes."""
    return torch.equal(as_bytes(left), as_bytes(right.contiguous())) if left.numel() else True


@dataclass(frozen=True)
class Null:
    """What null calls showed between the two clocks, in µs: the least, and by how much the median lay above it."""

    least_us: float
    noise_us: float
    floor_us: float

    @classmethod
    def of(cls, calls: Sequence[Call]) -> Null:
        """The figures of a process's null calls."""
        gaps = [between(call) for call in calls]
        return cls(min(gaps), statistics.median(gaps) - min(gaps), statistics.median(c.us for c in calls))


def check_clocks(calls: Sequence[Call], null: Null, device: str) -> Finding | None:
    """Whether the runner's clock agrees with the referee's, less what a null call takes between the same points.

    What lies between the two clocks is the protocol's own time, which only a busy machine can lengthen. So the
    least of it is compared, over the faster half of the calls: those that place the median. Where the machine is
    so busy that null calls scatter as widely, nobody is accused, and neither where the referee's clock shows less
    than the runner's: then the null calls were disturbed, and a time told too long harms its teller alone.
    """
    if any(not math.isfinite(c.us) or c.us <= 0 for c in calls):
        return Finding(Status.IMPOSSIBLE, "the runner reported a time that is not positive and finite")
    faster = sorted(calls, key=lambda c: c.us)[: (len(calls) + 1) // 2]
    hidden_us = min(between(c) for c in faster) - null.least_us
    told_us = statistics.median(c.us for c in calls)
    waited_us = HOST_BOUND_SLACK_US if any(c.host_bound for c in faster) else 0.0
    slack_us = waited_us + max(REFEREE_SLACK_US[device], REFEREE_SLACK[device] * (told_us + max(hidden_us, 0.0)))
    if hidden_us <= slack_us:
        return None
    text = (
        f"the runner's clock says {told_us:.1f} us, the referee's {told_us + hidden_us:.1f} us;"
        f" {slack_us:.1f} us may lie between"
    )
    if hidden_us <= slack_us + 5.0 * null.noise_us:
        return Finding(Status.UNSTABLE, f"{text}, and null calls scatter by {null.noise_us:.1f} us")
    return Finding(Status.RULE_BROKEN, text)


def between(call: Call) -> float:
    """What the referee's clock shows of a call beyond the runner's, in µs."""
    return call.referee_us - call.us
