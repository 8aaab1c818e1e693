"""A release by its name, or from a directory of operator folders, a build, or five files an operator."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from pathlib import Path

from roofmark import hardware, operators
from roofmark.errors import ProblemError
from roofmark.hardware import t_sol_us
from roofmark.operators import Operator
from roofmark.records import Roofline, Shape
from roofmark.releases.frozen import edits, frozen
from roofmark.releases.records import Release, ReleaseOperator, ReleaseShape

# the accelerators whose constants are a release's where none are written down
PAPER_GPUS = ("xpu_a", "h20")


def load(release: str | Path) -> Release:
    """The release `release`: a name, or a directory. `UserError` for neither, `ProblemError` for a malformed one."""
    root = Path(release)
    if not root.is_dir():
        return source_release(str(release))
    if operators.names(root):
        return source_release(root.resolve().name, root.resolve())
    raise ProblemError(f"{release} holds no operator")


def source_release(name: str, root: Path | None = None) -> Release:
    """The release whose source are the operators' folders: those of Roofmark as `name` froze them, or of `root`."""
    errata: Mapping[str, str] = {}
    constants = {gpu: hardware.load(gpu).roofline for gpu in PAPER_GPUS}
    date = ""
    if root is None:
        written = frozen(name)
        date, errata, constants = written.date, written.errata, written.rooflines
    every = [operators.load(one, root or operators.HERE) for one in operators.names(root or operators.HERE)]
    made = tuple(release_operator(one, constants, errata.get(one.name, "")) for one in every)
    return Release(
        name=name,
        date=date,
        kind="source",
        content_sha256=operators.content_sha256(root or operators.HERE),
        constants=constants,
        weights={one.name: one.weight for one in made},
        operators=made,
    )


def check_frozen(name: str) -> None:
    """Refuses, with a `ProblemError`, sources that were edited since the release was frozen."""
    if found := edits(name):
        raise ProblemError(f"{found[0]}" + (f", and {len(found) - 1} more" if len(found) > 1 else ""),
                           hint="a correction is a new release")  # fmt: skip


def release_operator(operator: Operator, constants: Mapping[str, Roofline], errata: str) -> ReleaseOperator:
    """An operator with all that a release knows of it."""
    spec, source = operator.spec, operator.provenance
    return ReleaseOperator(
        name=spec.name,
        title=spec.title,
        formula=spec.formula,
        dtype=spec.dtype,
        phase=spec.phase,
        framework=source.framework,
        symbol=source.symbol,
        weight=source.weight,
        texts={"reference.py": hashlib.sha256(operator.reference_text().encode()).hexdigest()},
        shapes=tuple(release_shape(operator, shape, constants, errata) for shape in operator.shapes),
    )


def release_shape(
    operator: Operator, shape: Shape, constants: Mapping[str, Roofline], errata: str
) -> ReleaseShape:  # fmt: skip
    """A shape with its works and bounds."""
    work, published = operator.work(shape.sizes), operator.work_published(shape.sizes)
    source = operator.provenance
    return ReleaseShape(
        operator=operator.name,
        shape_id=shape.shape_id,
        dims=shape.dims,
        init=shape.init,
        dtype=operator.spec.dtype,
        framework=source.frameworks.get(shape.shape_id, source.framework),
        work=work,
        work_published=published,
        t_sol_us={gpu: t_sol_us(work, roofline) for gpu, roofline in constants.items()},
        t_sol_published_us={gpu: t_sol_us(published, roofline) for gpu, roofline in constants.items()},
        weight=source.weight,
        baseline=tuple(b for b in source.baselines if b.shape_id == shape.shape_id),
        errata=(errata,) if errata and work != published else (),
    )
