"""A run's steps: the compile step for every shape, then each subject on each shape, a line on disk for each."""

from __future__ import annotations

import shutil
import time
import traceback
from contextlib import closing
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from functools import partial
from pathlib import Path

from roofmark.evaluate.compile import Compilation, compile_shape, read_plain
from roofmark.evaluate.judge import Outcome, Subject, Task, judge
from roofmark.evaluate.limits import Limits
from roofmark.evaluate.progress import Progress, Watch
from roofmark.evaluate.request import Request, sizes_for
from roofmark.evaluate.seeds import Seeds
from roofmark.records import Compiled, Gate, Status, Verdict, Work
from roofmark.sandbox.process import Sandbox
from roofmark.sandbox.shared import CpuDevice, CudaDevice, Device
from roofmark.store import Run, append_verdict, save_artefact

Key = tuple[str, str, str]


def open_device(name: str) -> Device:
    """The referee's hands on the device."""
    if name == "cuda":
        return CudaDevice()
    from roofmark.hardware.calibrate import llc_bytes

    return CpuDevice(llc_bytes())


@dataclass
class Steps:
    """A run in progress."""

    request: Request
    run: Run
    limits: Limits
    watch: Watch
    device: Device
    seeds: Seeds
    compilations: dict[str, Compilation] = field(default_factory=dict)

    def work_off(self, keys: list[Key], runner: Sandbox, compiler: Sandbox) -> None:
        """Judges every key of `keys`: gate 1 in a sandbox that is gone before the first runner starts."""
        with closing(compiler):
            runner.launch()  # not before: what it imports would keep the compiler waiting
            self.compile_all(compiler, keys)
        self.judge_all(runner, keys)

    def compile_all(self, sandbox: Sandbox, keys: list[Key]) -> None:
        """Gate 1 for every candidate shape of `keys`."""
        shapes = [shape_id for subject, _, shape_id in keys if subject == "candidate"]
        for done, shape_id in enumerate(shapes):
            self.watch(Progress(f"compiling shape {shape_id}", done, len(shapes)))
            started = time.monotonic()
            found = self.compile_one(sandbox, shape_id)
            self.compilations[shape_id] = replace(found, wall_s=time.monotonic() - started)

    def compile_one(self, sandbox: Sandbox, shape_id: str) -> Compilation:
        """Gate 1 on one shape, its objects stored with the run."""
        try:
            found = compile_shape(sandbox, self.task("candidate", shape_id))
            for artefact in found.artefacts:
                data = read_plain(sandbox.cache_dir / "artefacts" / artefact.name)
                if data is not None:
                    save_artefact(self.run, name=artefact.name, kind=artefact.kind, data=data)
        except Exception as error:  # noqa: BLE001 - docs/adr/0007
            return Compilation(Compiled.NOT_RUN, status=Status.INFRASTRUCTURE, message=told(error))
        finally:  # a runner that finds them would know that a compile step went before
            shutil.rmtree(sandbox.cache_dir / "artefacts", ignore_errors=True)
        return found

    def judge_all(self, sandbox: Sandbox, keys: list[Key]) -> None:
        """Gates 2 and 3 for every key of `keys`; each verdict is on disk before the next begins."""
        for done, (subject, operator, shape_id) in enumerate(keys):
            self.watch(Progress(f"{operator} shape {shape_id}, {subject}", done, len(keys)))
            started = time.monotonic()
            append_verdict(self.run, self.verdict(sandbox, subject, shape_id, started))
        self.watch(Progress("judged", len(keys), len(keys)))

    def verdict(self, sandbox: Sandbox, subject: str, shape_id: str, started: float) -> Verdict:
        """The verdict of one subject on one shape."""
        task = self.task("eager" if subject == "eager" else "candidate", shape_id)
        compilation = self.compilations.get(shape_id, Compilation(Compiled.NOT_RUN))
        if task.subject == "eager":
            compilation = Compilation(Compiled.NOT_RUN)
        if compilation.status is not Status.OK:
            outcome = Outcome(compilation.status, Gate.COMPILE, "", compilation.message)
        else:
            outcome = self.outcome(sandbox, task)
        return Verdict(
            subject=task.subject, operator=task.operator.name, shape_id=shape_id, dims=self.dims(task),
            stand_in=sizes_for(task.shape, self.request.device)[1], status=outcome.status, gate=outcome.gate,
            case=outcome.case, message=outcome.message, compiled=compilation.compiled,
            work=task.operator.work(task.sizes), timing=outcome.timing, adoption=outcome.adoption,
            artefacts=compilation.artefacts, max_error_ratio=outcome.max_error_ratio,
            case_dims=None if outcome.status is Status.OK else outcome.case_sizes,
            seed="" if outcome.status is Status.OK else outcome.seed,
            calls_checked=outcome.calls_checked, wall_s=round(compilation.wall_s + time.monotonic() - started, 3),
            finished_at=datetime.now(UTC).isoformat(timespec="seconds"),
        )  # fmt: skip

    def outcome(self, sandbox: Sandbox, task: Task) -> Outcome:
        """Gates 2 and 3; what the referee itself fails at is `infrastructure`."""
        try:
            bound = partial(self.bound_us, task.operator.work(task.sizes))
            return judge(sandbox, task, limit_us=self.limit_us(task), t_sol_us=bound)
        except Exception as error:  # noqa: BLE001 - docs/adr/0007
            return Outcome(Status.INFRASTRUCTURE, message=told(error))

    def bound_us(self, work: Work, again: bool) -> float:
        """T_SOL of `work` in µs; with `again`, under limits measured anew."""
        if again:
            self.limits.measure(self.run, self.watch)
        return self.limits.t_sol_us(work)

    def limit_us(self, task: Task) -> float | None:
        """The time budget of a candidate: a multiple of the eager reference's time in this run."""
        eager = self.run.standing.get(("eager", task.operator.name, task.shape.shape_id))
        if task.subject == "eager" or eager is None or eager.timing is None:
            return None
        return eager.timing.median_us * self.request.config.time_budget_ratio

    def task(self, subject: Subject, shape_id: str) -> Task:
        """The task of a subject on a shape."""
        operator = self.request.operator
        shape = operator.shape(shape_id)
        source = operator.reference_text().encode() if subject == "eager" else self.request.candidate.source
        sizes, _ = sizes_for(shape, self.request.device)
        return Task(subject, source, operator, shape, sizes, self.device, self.request.config, self.seeds)

    def dims(self, task: Task) -> dict[str, object]:
        """The sizes that were run, without those that `__init__` takes alone."""
        return {k: task.sizes[k] for k in task.shape.dims}


def told(error: BaseException) -> str:
    """An exception of the referee's in one line, with the place it came from."""
    last = traceback.extract_tb(error.__traceback__)[-1:]
    place = "".join(f" ({Path(frame.filename).name}:{frame.lineno})" for frame in last)
    return f"{type(error).__name__}: {' '.join(str(error).split())}"[:600] + place
