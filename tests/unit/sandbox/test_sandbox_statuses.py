"""Each status of the taxonomy has a candidate that ends in it."""

from __future__ import annotations

import shutil
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from referee import CONFIG, Referee, good
from roofmark import operators
from roofmark.evaluate.judge import Task
from roofmark.evaluate.steps import Steps
from roofmark.records import Status

HEAD = """
import random, time
import torch
from torch import nn


class Model(nn.Module):
    def __init__(self, eps):
        super().__init__()
        self.eps = eps

    def right(self, x, weight):
        wide = x.float()
        return (wide * torch.rsqrt(wide.square().mean(-1, keepdim=True) + self.eps) * weight.float()).to(x.dtype)

    def forward(self, x, weight):
"""


@dataclass(frozen=True)
class Example:
    """A forward and what it is judged under."""

    forward: str
    config: dict[str, Any] = field(default_factory=dict)
    limit_us: float | None = None
    t_sol_us: float = 0.01
    all_gates: bool = False


EXAMPLES = {
    Status.OK: Example("return self.right(x, weight)"),
    Status.COMPILE_ERROR: Example("return self.wrong(", all_gates=True),
    Status.CRASH: Example("raise ValueError('no')"),
    Status.TIMEOUT: Example("time.sleep(30)", {"first_call_s": 1.5}),
    Status.OUT_OF_MEMORY: Example("return torch.empty(1 << 50)"),
    Status.WRONG_SHAPE_OR_DTYPE: Example("return self.right(x, weight).float()"),
    Status.NOT_FINITE: Example("return self.right(x, weight) / 0"),
    Status.WRONG_VALUES: Example("return -self.right(x, weight)"),
    Status.RULE_BROKEN: Example("weight.zero_(); return self.right(x, weight)"),
    Status.OVER_TIME_BUDGET: Example("time.sleep(2e-3); return self.right(x, weight)", limit_us=100.0),
    Status.UNSTABLE: Example(
        "time.sleep(random.choice((0.0, 0.02))); return self.right(x, weight)",
        {"target_half_width": 1e-6, "accepted_half_width": 1e-6, "target_half_width_us": 1e-6, "timing_s": 0.1},
    ),
    Status.IMPOSSIBLE: Example("return self.right(x, weight)", t_sol_us=1e9),
}


@pytest.mark.parametrize("status", EXAMPLES, ids=lambda status: status.value)
def test_status_has_a_candidate_that_ends_in_it(status: Status, referee: Referee) -> None:
    example = EXAMPLES[status]
    source = (HEAD + " " * 8 + example.forward + "\n").encode()
    for _ in range(3):  # a busy machine may leave a time unknown, which is `unstable`
        task = referee.task(source, config=CONFIG.model_copy(update=example.config))
        judged = (
            referee.judge_all(task)
            if example.all_gates
            else referee.judge(task, limit_us=example.limit_us, t_sol_us=example.t_sol_us)
        )
        if judged.outcome.status is not Status.UNSTABLE:
            break
    assert judged.outcome.status is status, judged.outcome.message
    assert bool(judged.outcome.message) is (status is not Status.OK)


def test_every_status_is_tried() -> None:
    assert {*EXAMPLES, Status.INFRASTRUCTURE} == set(Status)


class Bare(Steps):
    """Steps without a run."""

    def limit_us(self, task: Task) -> float | None:
        """No budget."""
        return None


def broken_oracle(tmp_path: Path, said: str) -> operators.Operator:
    """A copy of an operator whose oracle fails."""
    folder = tmp_path / "rms_norm"
    shutil.copytree(operators.HERE / "rms_norm", folder, ignore=shutil.ignore_patterns("__pycache__"))
    oracle = folder / "oracle.py"
    oracle.write_text(oracle.read_text() + f"\n\ndef expected_rows(inputs, sizes, index):\n    {said}\n")
    return operators.load("rms_norm", tmp_path)


@pytest.mark.parametrize("said", ["raise RuntimeError('out of memory')", "raise StopIteration", "return {}"])
def test_the_referee_s_own_failure_is_not_the_candidate_s(said: str, referee: Referee, tmp_path: Path) -> None:
    """F8. What the steps of a run turn into `infrastructure`."""
    task: Task = referee.task(good(), broken_oracle(tmp_path, said))
    nothing: Any = None
    steps = Bare(nothing, nothing, nothing, nothing, nothing, nothing)
    found = steps.outcome(referee.sandbox, task)
    assert found.status is Status.INFRASTRUCTURE
    assert ".py:" in found.message
    assert referee.judge(referee.task(good())).outcome.status in (Status.OK, Status.UNSTABLE)


def test_a_crash_names_the_line_of_the_candidate(referee: Referee) -> None:
    source = (
        b"class Model:\n    def __init__(self, eps):\n        self.eps = eps\n\n    def forward(self, x, weight):\n"
    )
    crash = source + b"        return x.no_such_thing()\n"
    assert referee.judge(referee.task(crash)).outcome.message.endswith("(line 6)")
