"""One shape of an operator on trial."""

from __future__ import annotations

import random
import time
from collections.abc import Collection

from roofmark.evaluate.integrity import same_bytes
from roofmark.evaluate.lint.cases import MAIN, OTHER, Case, Trial, make_case, model_of
from roofmark.evaluate.lint.proof import ShapeProof
from roofmark.evaluate.lint.right import check_rows_alone, pass_rows, pass_whole
from roofmark.evaluate.lint.wrong import kill_all, kill_on_corner
from roofmark.evaluate.request import sizes_for
from roofmark.evaluate.seeds import Seeds
from roofmark.operators import Operator, Sizes, zoo
from roofmark.records import Shape

# what whole answers, in float64 too, may cost away from the shape itself
CHEAP_BYTES = {"cpu": 1 << 24, "cuda": 1 << 31}
CHEAP_FLOPS = {"cpu": 1e9, "cuda": 1e12}


def prove_shape(
    operator: Operator, shape: Shape, *, device: str, seed: int = 0, corners: Collection[str] | None = None
) -> ShapeProof:
    """What holds on one shape, at full size or its stand-in's; `corners` are the corner cases to run, None: all."""
    started = time.monotonic()
    sizes, stand_in = sizes_for(shape, device)
    seeds = Seeds(f"{seed}/{operator.name}/{shape.shape_id}".encode()[:64])
    trial = Trial(operator, shape, zoo.load(operator), device, seeds)
    with trial.guarded(MAIN, "reference"):
        trial.model = model_of(operator.reference_text(), shape, sizes)
        _on_the_shape(trial, sizes)
        _elsewhere(trial, sizes, corners)
    return ShapeProof(
        operator=operator.name, shape_id=shape.shape_id, dims={key: sizes[key] for key in shape.dims},
        stand_in=stand_in, device=device, seed=seed, held=tuple(trial.held), passed=tuple(trial.passed),
        killed=trial.killed, late=trial.late, same=tuple(trial.same), not_run=trial.not_run, sharp=trial.sharp,
        worst_ratio=trial.worst_ratio, faults=tuple(trial.faults), wall_s=round(time.monotonic() - started, 3),
        **trial.figures,
    )  # fmt: skip


def _on_the_shape(trial: Trial, sizes: Sizes) -> None:
    """Two seeds of the shape itself: the reference is right, and so are others; all that is wrong fails."""
    cases: list[Case] = []
    for name in (MAIN, OTHER):
        with trial.guarded(name, "reference"):
            case = make_case(trial, name, sizes)
            cases += [] if case is None else [case]
    if len(cases) < 2:
        return
    main, other = cases
    for key, tensor in main.inputs.items():
        alike = same_bytes(tensor, other.inputs[key])
        if alike and tensor.is_floating_point() and key not in trial.zoo.fixed:
            trial.fault(MAIN, f"input {key}", "is the same under two seeds")
    with trial.guarded(MAIN, "mistakes"):
        kill_all(trial, main, other)
    with trial.guarded(MAIN, "right answers"):
        pass_rows(trial, main)
        if _is_cheap(trial, sizes):
            pass_whole(trial, main)


def _elsewhere(trial: Trial, sizes: Sizes, corners: Collection[str] | None) -> None:
    """The reference, and right answers where they are cheap, on neighbours and corner cases."""
    plan: list[tuple[str, Sizes]] = []
    with trial.guarded("neighbours", "neighbours"):
        near = trial.operator.neighbours(sizes, random.Random(trial.seeds.next()))
        plan += [(f"neighbour {number}", these) for number, these in enumerate(near, 1)]
    with trial.guarded("corners", "corners"):
        cases = trial.operator.corners(sizes)
        plan += [(f"corner:{name}", these) for name, these in cases.items() if corners is None or name in corners]
        for corner, title in trial.zoo.wrong_on_corners:
            if corner not in cases:
                trial.fault("corners", title, f"there is no corner case {corner!r}")
    for name, these in plan:
        with trial.guarded(name, "reference"):
            case = make_case(trial, name, these)
            if case is not None:
                _with_right_answers(trial, case, name)
                kill_on_corner(trial, case)


def _with_right_answers(trial: Trial, case: Case, name: str) -> None:
    if name.startswith("corner:"):
        pass_rows(trial, case)
    if name == "corner:tail" or _is_cheap(trial, case.sizes):
        pass_whole(trial, case)
        check_rows_alone(trial, case)


def _is_cheap(trial: Trial, sizes: Sizes) -> bool:
    """Whether whole answers cost little at these sizes."""
    work = trial.operator.work(sizes)
    return work.bytes_total < CHEAP_BYTES[trial.device] and sum(work.flops.values()) < CHEAP_FLOPS[trial.device]
