"""A set of operators on disk, whatever its layout: operator folders, a build of ours, five files of somebody else's."""

from __future__ import annotations

import os
from enum import StrEnum
from functools import cache
from hashlib import sha256
from pathlib import Path

from roofmark import operators
from roofmark.errors import ProblemError, UserError
from roofmark.operators import Operator
from roofmark.releases import contract, foreign
from roofmark.releases.export import HIDDEN, MANIFEST, VISIBLE
from roofmark.releases.frozen import check_frozen, names
from roofmark.releases.verify import verify_build

BUILT_IN = "built-in"


class Layout(StrEnum):
    """How a set lies on disk."""

    SOURCE = "source"
    BUILD = "build"
    FIVE_FILES = "five files"


def resolve(release: str | None) -> tuple[str, Path]:
    """Name and folder of a set: the one built in, a release by its name, or a directory.

    A build of the sources at hand is judged as these are, with their oracles; its folder is theirs.
    """
    if release is None or release == BUILT_IN:
        return BUILT_IN, operators.HERE
    root = Path(release)
    if not os.path.isdir(root):
        if release not in names():
            raise UserError(f"no release {release!r}", hint=f"name a directory, or {', '.join((*names(), BUILT_IN))}")
        check_frozen(release)
        return release, operators.HERE
    root = root.resolve()
    if layout(root) is Layout.BUILD:
        name = str(manifest(root).get("name", root.name))
        return name, operators.HERE if is_of_these_sources(root) else root
    return root.name, root


def layout(root: Path) -> Layout:
    """How the set under `root` lies; `UserError` where there is none, or only what an agent may see of one."""
    if operators.names(root):
        return Layout.SOURCE
    if not contract.names(root):
        hint = f"an operator is a folder with operator.toml, or with {', '.join((*VISIBLE, *HIDDEN))}"
        raise UserError(f"{root} holds no operator", hint=hint)
    if contract.is_visible_export(root):
        raise UserError(f"{root} is what an agent may see of a release: it has no weights and no works",
                        hint="name the whole build")  # fmt: skip
    return Layout.BUILD if (root / MANIFEST).is_file() else Layout.FIVE_FILES


def manifest(root: Path) -> dict[str, object]:
    """What `release.json` of a build says."""
    return contract.json_file(root / MANIFEST)


def is_of_these_sources(root: Path) -> bool:
    """Whether a build was made of the operators at hand; `ProblemError` where it is not as it was built."""
    if problems := verify_build(root).problems:
        raise ProblemError(f"{root}: {problems[0]}", hint=f"roofmark release verify {root} tells all")
    return manifest(root).get("source_sha256") == operators.content_sha256()


def operator_names(root: Path) -> tuple[str, ...]:
    """The names of the operators of a set, sorted."""
    return operators.names(root) or contract.names(root)


@cache
def operator(name: str, root: Path) -> Operator:
    """The operator `name` of a set; `UserError` if unknown, `ProblemError` if its files are malformed."""
    if operators.names(root) or name not in contract.names(root):
        return operators.load(name, root)
    return foreign.load(root / name)


def content_sha256(root: Path) -> str:
    """The hash of all that defines the operators of a set."""
    if operators.names(root):
        return operators.content_sha256(root)
    digest = sha256()
    for name in contract.names(root):
        for file in (*VISIBLE, *HIDDEN):
            path = root / name / file
            data = path.read_bytes() if path.is_file() else b""
            digest.update(f"{name}/{file} {len(data)}\n".encode())
            digest.update(data)
    return digest.hexdigest()


def unavailable(root: Path) -> tuple[str, ...]:
    """What can't be checked of a set, one line each; empty where its operators have oracles of their own."""
    return () if operators.names(root) else foreign.UNAVAILABLE
