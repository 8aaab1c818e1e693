"""Freezes the operators' folders into a directory of five files an operator."""

from __future__ import annotations

import os
import shutil
import tempfile
from pathlib import Path

from roofmark import operators
from roofmark.errors import ProblemError, UserError
from roofmark.operators import Operator
from roofmark.records import Record
from roofmark.releases.export import MANIFEST, VISIBLE, as_json, five_files, manifest_data, visible_manifest
from roofmark.releases.frozen import SHARED_KEY, check_frozen, source_sha256
from roofmark.releases.load import load
from roofmark.releases.records import Release
from roofmark.releases.redact import names_of, redacted
from roofmark.releases.totals import catalogue_name


class Built(Record):
    """A build: where it lies, and what is in it."""

    name: str
    path: str
    operators: int
    shapes: int
    files: int
    content_sha256: str
    visible: bool
    redacted: bool


def build(release: str | Path, out: Path, *, visible: bool = False, redact: bool = False) -> Built:
    """The build of a release at `out`, whole or not at all.

    `visible`: only what an agent may see. `redact`: no names of models, applications and hosts. `UserError` where
    `out` holds something, `ProblemError` for sources that are not as they were frozen, or a bound above a time.
    """
    if os.path.lexists(out) and not (out.is_dir() and not any(out.iterdir())):
        raise UserError(f"{str(out)!r} is there already", hint="name a new directory")
    if not os.path.isdir(out.parent):
        raise UserError(f"there is no directory {str(out.parent)!r}")
    found = load(release)
    if found.kind != "source":
        raise UserError(f"{release} is a {found.kind}, not a source", hint="build from operator folders or a name")
    root = Path(release).resolve() if os.path.isdir(release) else operators.HERE
    if root == operators.HERE:
        check_frozen(found.name)
    refuse_impossible(found)
    sources = {one.name: operators.load(one.name, root) for one in found.operators}
    files = texts(found, sources, visible, redact)
    if visible:
        manifest = visible_manifest(found, files)
    else:
        hashes = source_sha256(root)
        manifest = manifest_data(found, files, hashes, visible=False, redacted=redact)
        assert set(hashes) == {SHARED_KEY, *sources}
    write(out, {**files, MANIFEST: as_json(manifest)})
    return Built(
        name=found.name, path=str(out), operators=len(sources), shapes=len(found.shapes), files=len(files),
        content_sha256=manifest["content_sha256"], visible=visible, redacted=redact,
    )  # fmt: skip


def texts(release: Release, sources: dict[str, Operator], visible: bool, redact: bool) -> dict[str, str]:
    """The text of every file by its path inside the build."""
    names = names_of(sources.values()) if redact else frozenset()
    made = {}
    for one in release.operators:
        files = five_files(sources[one.name], one)
        if visible:
            files = {file: files[file] for file in VISIBLE}
        named = {f"{one.name}/{file}": text for file, text in files.items()}
        made.update(redacted(named, names) if redact else named)
    return made


def refuse_impossible(release: Release) -> None:
    """Refuses, with a `ProblemError`, a release in which a deployed kernel is faster than a bound allows."""
    for shape in release.shapes:
        for baseline in shape.baseline:
            bound = shape.t_sol_us.get(catalogue_name(baseline.gpu))
            if bound is not None and bound > baseline.time_us:
                raise ProblemError(
                    f"{shape.operator} shape {shape.shape_id}: T_SOL on {baseline.gpu} is {bound:.4g} us,"
                    f" above the deployed {baseline.time_us:.4g} us",
                    hint="its work, its constants or its time is wrong",
                )


def write(out: Path, files: dict[str, str]) -> None:
    """Writes the files beside `out` and moves them there in one step."""
    try:
        place = Path(tempfile.mkdtemp(dir=out.resolve().parent, prefix=f".{out.name[:99]}."))
    except OSError as error:
        raise UserError(f"{str(out)!r} can't be written: {error.strerror}") from error
    try:
        for name, text in files.items():
            (place / name).parent.mkdir(exist_ok=True)
            (place / name).write_text(text, encoding="utf-8")
        place.chmod(0o755)
        os.replace(place, out.resolve())
    except OSError as error:
        raise UserError(f"{str(out)!r} can't be written: {error.strerror}") from error
    finally:
        shutil.rmtree(place, ignore_errors=True)
