"""Is a release as it was frozen? Every hash anew, and what changed."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path

from roofmark import operators
from roofmark.errors import ProblemError, UserError
from roofmark.releases.contract import json_file
from roofmark.releases.export import MANIFEST, content_sha256
from roofmark.releases.frozen import edits, names, source_sha256
from roofmark.releases.records import Verified


def verify(release: str | Path) -> Verified:
    """What a look at every file says, of a release by its name against its sources, or of a build."""
    if str(release) in names() and not os.path.isdir(release):
        count = len(source_sha256()) - 1
        digest = operators.content_sha256()
        return Verified(name=str(release), content_sha256=digest, problems=edits(str(release)),
                        files=count * len(operators.SOURCES) + len(operators.SHARED))  # fmt: skip
    return verify_build(Path(release))


def verify_build(root: Path) -> Verified:
    """What a look at every file of a build, or of a visible export, says."""
    path = root / MANIFEST
    if not os.path.isdir(root):
        raise UserError(f"no release {str(root)!r}", hint=f"name a directory, or {', '.join(names())}")
    if not path.is_file():
        raise ProblemError(f"{root} has no {MANIFEST}: it is no build", hint="roofmark release build makes one")
    data = json_file(path)
    was = data.get("files")
    if not isinstance(was, dict):
        raise ProblemError(f"{path} lists no files")
    now = {name: hashlib.sha256((root / name).read_bytes()).hexdigest() for name in files_under(root)}
    problems = [f"{name} was changed" for name in was if name in now and now[name] != was[name]]
    problems += [f"{name} is missing" for name in was if name not in now]
    problems += [f"{name} was added" for name in now if name not in was]
    said = str(data.get("content_sha256", ""))
    if content_sha256(data) != said:
        problems.append(f"{MANIFEST} was changed")
    return Verified(
        name=str(data.get("name", root.name)), content_sha256=said, files=len(was), problems=tuple(problems)
    )


def files_under(root: Path) -> list[str]:
    """The files of a build by their paths inside it, sorted; without its manifest and what Python caches."""
    found = []
    for folder, folders, files in os.walk(root):
        folders[:] = [name for name in folders if name != "__pycache__"]
        found += [str((Path(folder) / name).relative_to(root)) for name in files]
    return sorted(name for name in found if name != MANIFEST)
