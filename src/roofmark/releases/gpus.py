"""A release on another accelerator: the bounds of its shapes there, and which of them its memory holds."""

from __future__ import annotations

from collections.abc import Sequence
from math import fsum, prod
from pathlib import Path

from roofmark import hardware, operators
from roofmark.errors import DeviceError
from roofmark.hardware import Gpu, t_sol_us
from roofmark.hardware.roofline import ALIASES
from roofmark.operators import Operator
from roofmark.records import Record, Roofline
from roofmark.releases.records import Release, ReleaseShape

# Inputs as drawn and as shared with the candidate; outputs as shared, as taken over and as the candidate made them.
COPIES_OF_INPUTS, COPIES_OF_OUTPUTS = 2, 3
# What a check of some rows at a time takes at most, and per element of an output where all are looked at in one
# piece: the value, its bound and two steps between, each in float64.
CHECK_BYTES, WHOLE_CHECK_BYTES_PER_ELEMENT = 2 << 30, 32


class ShapeOnGpu(Record):
    """The bound of a shape on one accelerator, in µs."""

    operator: str
    shape_id: str
    gpu: str
    t_sol_us: float


class Fit(Record):
    """Whether the memory of an accelerator holds what judging a shape takes."""

    operator: str
    shape_id: str
    gpu: str
    needs_bytes: int
    memory_bytes: int

    @property
    def fits(self) -> bool:
        """Whether it does."""
        return self.needs_bytes <= self.memory_bytes


def dtypes_of(release: Release) -> tuple[str, ...]:
    """The dtypes that the arithmetic of a release uses, sorted."""
    return tuple(sorted({d for shape in release.shapes for d, count in shape.work.flops.items() if count}))


def complete_roofline(gpu: Gpu, dtypes: Sequence[str]) -> Roofline:
    """The roofline of an accelerator; `DeviceError` where it lacks the peak of one of these dtypes."""
    roofline = gpu.roofline
    known = set(roofline.peak_flops)
    lacking = [d for d in dtypes if d not in known and ALIASES.get(d, d) not in known]
    if lacking:
        raise DeviceError(f"{gpu.name} has no peak of {', '.join(lacking)}: its constants are incomplete",
                          hint=f"add it to {gpu.name}.toml, with `via` where it runs on a wider unit")  # fmt: skip
    return roofline


def retarget(release: Release, gpu: str) -> tuple[ShapeOnGpu, ...]:
    """The bound of every shape, by the work that scores, on an accelerator of the catalogue."""
    roofline = complete_roofline(hardware.load(gpu), dtypes_of(release))
    return tuple(
        ShapeOnGpu(operator=s.operator, shape_id=s.shape_id, gpu=gpu, t_sol_us=t_sol_us(s.work, roofline))
        for s in release.shapes
    )


def fits(release: Release, gpu: str, root: Path = operators.HERE) -> tuple[Fit, ...]:
    """For every shape what judging it takes on a card, and what that card has; `DeviceError` if that is unknown."""
    memory = hardware.load(gpu).figures.get("memory")
    if memory is None:
        raise DeviceError(f"the catalogue has no memory of {gpu}", hint="name one that has: `roofmark hardware list`")
    loaded = {operator.name: operators.load(operator.name, root) for operator in release.operators}
    return tuple(
        Fit(operator=s.operator, shape_id=s.shape_id, gpu=gpu, needs_bytes=needs_bytes(loaded[s.operator], s),
            memory_bytes=int(memory.si))
        for s in release.shapes
    )  # fmt: skip


def needs_bytes(operator: Operator, shape: ReleaseShape) -> int:
    """What judging a shape takes: inputs twice, outputs three times, and the check.

    Inputs are counted as the larger of the two works has them; what no call reads counts as far as published.
    """
    import torch

    specs = operator.outputs(shape.sizes)
    elements = sum(prod(spec.shape) for spec in specs)
    outputs: int = sum(prod(spec.shape) * getattr(torch, spec.dtype).itemsize for spec in specs)
    inputs = max(shape.work.bytes_read, shape.work_published.bytes_read)
    check = elements * WHOLE_CHECK_BYTES_PER_ELEMENT if operator.whole else CHECK_BYTES
    return COPIES_OF_INPUTS * inputs + COPIES_OF_OUTPUTS * outputs + check


def weight_out(release: Release, found: Sequence[Fit]) -> float:
    """The share of the weight that shapes carry which don't fit, each shape an even part of its operator's."""
    out = {(one.operator, one.shape_id) for one in found if not one.fits}
    parts = [
        operator.weight * sum((operator.name, s.shape_id) in out for s in operator.shapes) / len(operator.shapes)
        for operator in release.operators
    ]
    return fsum(parts) / fsum(release.weights.values())
