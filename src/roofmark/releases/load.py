"""A release by its name, or from a directory of operator folders, a build, or five files an operator."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from roofmark import hardware, operators
from roofmark.errors import ProblemError
from roofmark.hardware import t_sol_us
from roofmark.operators import Operator
from roofmark.records import OperatorSpec, Provenance, Roofline, Shape, Work
from roofmark.releases import contract, sets
from roofmark.releases.contract import FiveFiles
from roofmark.releases.export import input_text, sha256
from roofmark.releases.frozen import frozen
from roofmark.releases.records import Release, ReleaseOperator, ReleaseShape

# the accelerators whose constants are a release's where none are written down
PAPER_GPUS = ("xpu_a", "h20")


def load(release: str | Path) -> Release:
    """The release `release`: a name, or a directory. `UserError` for neither, `ProblemError` for a malformed one."""
    root = Path(release)
    if not os.path.isdir(root):
        return source_release(str(release))
    root = root.resolve()
    if sets.layout(root) is sets.Layout.SOURCE:
        return source_release(root.name, root)
    return files_release(root)


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


def release_operator(operator: Operator, constants: Mapping[str, Roofline], errata: str) -> ReleaseOperator:
    """An operator of a source with all that a release knows of it; `errata` says why its works differ."""
    spec, source = operator.spec, operator.provenance
    made = []
    for shape in operator.shapes:
        works = operator.work(shape.sizes), operator.work_published(shape.sizes)
        reasons = (errata,) if errata and works[0] != works[1] else ()
        made.append(shape_of(shape, spec, source, constants, works, reasons))
    texts = {"reference.py": sha256(operator.reference_text()), "input.py": sha256(input_text(operator.folder))}
    return operator_of(spec, source, texts, tuple(made))


def operator_of(
    spec: OperatorSpec, source: Provenance, texts: dict[str, str], shapes: tuple[ReleaseShape, ...]
) -> ReleaseOperator:
    """The record of an operator."""
    return ReleaseOperator(
        name=spec.name,
        title=spec.title,
        formula=spec.formula,
        dtype=spec.dtype,
        phase=spec.phase,
        framework=source.framework,
        symbol=source.symbol,
        weight=source.weight,
        texts=texts,
        shapes=shapes,
    )


def shape_of(
    shape: Shape,
    spec: OperatorSpec,
    source: Provenance,
    constants: Mapping[str, Roofline],
    works: tuple[Work, Work],
    errata: tuple[str, ...],
) -> ReleaseShape:
    """The record of a shape; `works` are the one that scores and the published one."""
    work, published = works
    return ReleaseShape(
        operator=spec.name,
        shape_id=shape.shape_id,
        dims=shape.dims,
        init=shape.init,
        dtype=spec.dtype,
        framework=source.frameworks.get(shape.shape_id, source.framework),
        work=work,
        work_published=published,
        t_sol_us={gpu: t_sol_us(work, roofline) for gpu, roofline in constants.items()},
        t_sol_published_us={gpu: t_sol_us(published, roofline) for gpu, roofline in constants.items()},
        weight=source.weight,
        baseline=tuple(b for b in source.baselines if b.shape_id == shape.shape_id),
        errata=errata,
    )


def files_release(root: Path) -> Release:
    """The release in a directory of five files an operator: a build of ours, or somebody else's."""
    layout = sets.layout(root)
    head = sets.manifest(root) if layout is sets.Layout.BUILD else {}
    constants = {gpu: hardware.load(gpu).roofline for gpu in PAPER_GPUS}
    if "constants" in head:
        constants = {gpu: roofline(root, told) for gpu, told in dict(head["constants"]).items()}  # type: ignore[call-overload]
    made = tuple(files_operator(contract.read(root / name), constants) for name in contract.names(root))
    return Release(
        name=str(head.get("name", root.name)),
        date=str(head.get("date", "")),
        kind=layout.value,
        content_sha256=str(head.get("content_sha256") or sets.content_sha256(root)),
        constants=constants,
        weights={one.name: one.weight for one in made},
        operators=made,
    )


def roofline(root: Path, told: Any) -> Roofline:
    """The constants of one accelerator as a build has them."""
    try:
        return Roofline.model_validate(told)
    except ValidationError as error:
        raise ProblemError(f"{root}: constants: {error.errors()[0]['msg']}") from error


def files_operator(files: FiveFiles, constants: Mapping[str, Roofline]) -> ReleaseOperator:
    """An operator of five files with all that a release knows of it."""
    spec, source = files.spec, files.provenance
    made = []
    for shape in files.shapes:
        work, published = files.works[shape.shape_id], files.works_published[shape.shape_id]
        reasons = files.errata.get(shape.shape_id, ())
        made.append(shape_of(shape, spec, source, constants, (work, published), reasons))
    texts = {file: sha256((files.folder / file).read_text(encoding="utf-8")) for file in ("reference.py", "input.py")}
    return operator_of(spec, source, texts, tuple(made))
