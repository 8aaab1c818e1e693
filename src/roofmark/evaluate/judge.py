"""One subject on one shape, through gates 2 and 3, in one process that sees no difference between them."""

from __future__ import annotations

import statistics
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Literal

from torch import Tensor

from roofmark.errors import CandidateError, DeviceError
from roofmark.evaluate import integrity, performance
from roofmark.evaluate.config import Config
from roofmark.evaluate.correctness import Finding, check_outputs, choose_rows
from roofmark.evaluate.seeds import Seeds
from roofmark.evaluate.session import Call, Case, Session, number
from roofmark.operators import Operator, Sizes
from roofmark.records import Gate, Shape, Status, Timing
from roofmark.sandbox.child import CandidateEnded
from roofmark.sandbox.process import Sandbox
from roofmark.sandbox.shared import Device
from roofmark.sandbox.system import plain

MAIN = "shape"
Subject = Literal["candidate", "eager"]
# the least time that a shape can take, in us; asked with True, after measuring the limits anew
Bound = Callable[[bool], float]


@dataclass(frozen=True)
class Task:
    """A subject, a shape and everything needed to judge the one on the other."""

    subject: Subject
    source: bytes
    operator: Operator
    shape: Shape
    sizes: Sizes
    device: Device
    config: Config
    seeds: Seeds


@dataclass
class Outcome:
    """What the gates have found so far."""

    status: Status = Status.OK
    gate: Gate | None = None
    case: str = ""
    message: str = ""
    timing: Timing | None = None
    adoption: dict[str, float] | None = None
    max_error_ratio: float = 0.0
    calls_checked: int = 0
    case_sizes: Sizes | None = None
    seed: str = ""

    def end(self, gate: Gate, case: str, finding: Finding) -> Outcome:
        """This outcome, ended by a finding."""
        self.status, self.gate, self.case, self.message = finding.status, gate, case, finding.message
        return self


class Ended(CandidateError):
    """A finding that ends the shape."""

    def __init__(self, gate: Gate, case: str, finding: Finding) -> None:
        super().__init__(finding.message)
        self.gate, self.case, self.finding = gate, case, finding


@dataclass
class Judge:
    """A session of one task, and what it has found."""

    task: Task
    session: Session
    outcome: Outcome
    gate: Gate = Gate.CORRECTNESS
    case: str = ""
    null: integrity.Null = field(default_factory=lambda: integrity.Null(0.0, 0.0, 0.0))
    call_s: float = 0.0
    cases: dict[str, Case] = field(default_factory=dict)

    def measure_null(self) -> None:
        """Times calls without a candidate: what the protocol itself takes. What fails here is not the candidate's."""
        try:
            self._measure_null()
        except CandidateEnded as end:
            raise DeviceError(f"the runner failed before it held a candidate: {end.message}") from end

    def _measure_null(self) -> None:
        inputs = self.draw(MAIN, self.task.sizes)
        case = self.session.bind(MAIN, self.task.sizes, inputs, timeout_s=self.task.config.first_call_s)
        self.cases[MAIN] = case
        calls = [
            self.session.call(case, inputs, timeout_s=self.task.config.first_call_s, null=True)
            for _ in range(self.task.config.null_calls)
        ]
        self.null = integrity.Null.of(calls)

    def load(self) -> None:
        """Imports the candidate and builds its model."""
        message = {"op": "load", "init": {key: self.task.sizes[key] for key in self.task.shape.init}}
        self.session.child.request(message, timeout_s=self.task.config.first_call_s)

    def draw(self, case: str, sizes: Sizes) -> dict[str, Tensor]:
        """Fresh inputs of a case."""
        seed, device = self.task.seeds.next(), self.task.device.name
        self.outcome.case_sizes, self.outcome.seed = sizes, f"{seed:032x}"
        if case.startswith("corner:"):
            name = case.removeprefix("corner:")
            return self.task.operator.make_corner(name, sizes, seed=seed, device=device)
        return self.task.operator.make_inputs(sizes, seed=seed, device=device)

    def checked_call(self, name: str, sizes: Sizes, *, thorough: bool, ungated: bool = False) -> Call:
        """One call of a case on fresh inputs, all of it checked; raises `Ended` where something is wrong."""
        self.case = name
        inputs = self.draw(name, sizes)
        if name not in self.cases:
            bound = self.session.bind(name, sizes, inputs, timeout_s=self.task.config.first_call_s)
            self.cases[name] = bound
        case = self.cases[name]
        call = self.session.call(case, inputs, timeout_s=self.call_s, ungated=ungated)
        specs = self.task.operator.outputs(sizes, self.task.device.name)
        mutable = self.task.operator.spec.legality.mutates
        for finding in (
            integrity.check_kinds(call, specs, self.task.device.name),
            integrity.check_inputs(case, inputs, mutable),
        ):
            self.refuse(finding)
        work = self.task.operator.work(sizes)
        rows = choose_rows(specs[0].shape[0], work, self.task.device.name, self.task.seeds.rng(), thorough=thorough)
        check = check_outputs(self.task.operator, inputs, sizes, call.outputs, rows)
        self.outcome.max_error_ratio = max(self.outcome.max_error_ratio, check.error_ratio)
        self.refuse(check.finding)
        self.refuse(integrity.check_sealed(case, call))
        self.outcome.calls_checked += 1
        return replace(call, outputs={})  # kept, they would fill the memory

    def refuse(self, finding: Finding | None) -> None:
        """Raises `Ended` where there is a finding."""
        if finding is not None:
            raise Ended(self.gate, self.case, finding)

    def check_all(self) -> None:
        """Gate 2: hidden seeds, corner cases and hidden neighbours, in an order drawn anew."""
        task = self.task
        rng = task.seeds.rng()
        plan: list[tuple[str, Sizes]] = [(MAIN, task.sizes)] * task.config.seeds
        if task.subject == "eager":  # it is there to be timed
            plan = plan[:2]
        else:
            plan += [(f"corner:{name}", sizes) for name, sizes in task.operator.corners(task.sizes).items()]
            near = task.operator.neighbours(task.sizes, rng)
            plan += [(f"neighbour {i + 1}", sizes) for i, sizes in enumerate(near)]
        rng.shuffle(plan)
        self.call_s = task.config.first_call_s
        for name, sizes in plan:
            self.checked_call(name, sizes, thorough=True)

    def sample(self, limit_us: float | None) -> performance.Samples:
        """Gate 3: timed calls, each on contents that no earlier call has seen, each checked."""
        self.gate, self.call_s = Gate.PERFORMANCE, self.task.config.call_s
        one = partial(self.checked_call, MAIN, self.task.sizes, thorough=False)
        config = self.task.config
        seconds = config.eager_timing_s if self.task.subject == "eager" else config.timing_s
        return performance.collect(one, config, seconds, limit_us)

    def host_us(self, samples: performance.Samples) -> float:
        """The median time of a forward from the host's call to the end of its work, in µs."""
        if not self.task.device.spins:
            return statistics.median(c.us for c in samples.calls)
        count = self.task.config.host_calls
        calls = [self.checked_call(MAIN, self.task.sizes, thorough=False, ungated=True) for _ in range(count)]
        return statistics.median(c.host_us for c in calls)

    def attribute(self) -> None:
        """Notes the shares of a forward's time by class of code; all `unknown` where it does not bear the look."""
        try:
            self.outcome.adoption = self._shares()
        except CandidateEnded:
            self.outcome.adoption = {"unknown": 1.0}

    def _shares(self) -> dict[str, float] | None:
        """The shares as the probe tells them; None where it can't tell."""
        inputs = self.draw(MAIN, self.task.sizes)
        for shared, tensor in zip(self.cases[MAIN].inputs, inputs.values(), strict=True):
            shared.view.copy_(tensor)
        self.task.device.synchronize()
        answer = self.session.child.request(
            {"op": "attribute", "case": self.cases[MAIN].token}, timeout_s=self.task.config.first_call_s
        )
        shares = answer.get("shares")
        told = {plain(k, 40): number(shares, k) for k in list(shares)[:16]} if isinstance(shares, dict) else {}
        times = {k: us for k, us in told.items() if 0 <= us < 1e12}
        total = sum(times.values())
        return {k: v / total for k, v in times.items()} if total > 0 else None


def judge(sandbox: Sandbox, task: Task, *, limit_us: float | None, t_sol_us: Bound) -> Outcome:
    """What gates 2 and 3 say of the task; failures of the candidate are outcomes, others are raised.

    A fresh process is tried where a median did not settle, and before a time that can't be true is believed.
    """
    outcome = Outcome()
    trusted = task.subject == "eager"  # our own text: its clocks are believed, its scatter is shown
    for process in range(1, task.config.processes + 1):
        outcome.timing = None
        with Session(sandbox.fork(setup(task), task.source), task.device, task.operator) as session:
            one = Judge(task, session, outcome)
            try:
                samples = one_process(one, limit_us)
                doubt = None if trusted else integrity.check_clocks(samples.calls, one.null, task.device.name)
                if doubt is None or doubt.status is not Status.IMPOSSIBLE:
                    outcome.timing = performance.timing(samples, one.host_us(samples), one.null, process)
                    doubt = doubt or doubted(outcome.timing, samples.settled or trusted, limit_us, t_sol_us)
                if doubt is None and not trusted:
                    one.attribute()
            except Ended as end:
                return outcome.end(end.gate, end.case, end.finding)
            except CandidateEnded as end:
                return outcome.end(one.gate, one.case, Finding(end.status, end.message))
        if doubt is None or doubt.status is Status.OVER_TIME_BUDGET:
            break
    return outcome if doubt is None else outcome.end(Gate.PERFORMANCE, MAIN, doubt)


def one_process(one: Judge, limit_us: float | None) -> performance.Samples:
    """Everything that one process is asked before its clocks are looked at."""
    one.measure_null()
    one.load()
    one.check_all()
    return one.sample(limit_us)


def doubted(timing: Timing, settled: bool, limit_us: float | None, t_sol_us: Bound) -> Finding | None:
    """Why a time is no result: beyond physics, over the budget, or not known well enough."""
    if timing.median_us < t_sol_us(False) and timing.median_us < (bound := t_sol_us(True)):
        text = f"T = {timing.median_us:.2f} us lies below T_SOL = {bound:.2f} us"
        return Finding(Status.IMPOSSIBLE, text)
    if limit_us is not None and timing.median_us > limit_us:
        text = f"T = {timing.median_us:.0f} us is over the budget of {limit_us:.0f} us, from the eager reference's time"
        return Finding(Status.OVER_TIME_BUDGET, text)
    if not settled:
        spread = (timing.interval_us.high - timing.interval_us.low) / 2 / timing.median_us
        text = f"the median is known to {spread:.1%} only in {timing.processes} fresh processes; is the machine busy?"
        return Finding(Status.UNSTABLE, text)
    return None


def setup(task: Task) -> dict[str, object]:
    """What a child is told before anything else: its device, and how much memory to touch."""
    outputs = task.operator.outputs(task.sizes, task.device.name)
    nbytes = 0
    for spec in outputs:
        count = 1
        for size in spec.shape:
            count *= size
        nbytes += count * 8
    return {"device": task.device.name, "touch_bytes": min(2 * nbytes, 2 << 30) if task.device.name == "cpu" else 0}
