"""The releases that come with Roofmark: what is written down of each, so that no edit goes unseen."""

from __future__ import annotations

import hashlib
import tomllib
from functools import cache
from pathlib import Path

from pydantic import ValidationError

from roofmark import operators
from roofmark.errors import ProblemError, UserError
from roofmark.records import Record, Roofline

HERE = Path(__file__).parent
SHARED_KEY = "shared"


class Constants(Record):
    """Dense peaks, FLOP/s per dtype, and bandwidth of one accelerator."""

    peak_flops: dict[str, float]
    bandwidth_bytes_per_s: float


class Frozen(Record):
    """What is written down of a release: weights, constants, why works differ, and the hash of every source."""

    name: str
    date: str
    source: str
    weights: dict[str, float]
    constants: dict[str, Constants]
    errata: dict[str, str]
    source_sha256: dict[str, str]

    @property
    def rooflines(self) -> dict[str, Roofline]:
        """The constants as rooflines, by the catalogue's names."""
        return {
            gpu: Roofline(device=gpu, peak_flops=c.peak_flops, bandwidth_bytes_per_s=c.bandwidth_bytes_per_s)
            for gpu, c in self.constants.items()
        }


def names() -> tuple[str, ...]:
    """The names of the releases that come with Roofmark, sorted."""
    return tuple(sorted(path.stem for path in HERE.glob("*.toml")))


@cache
def frozen(name: str) -> Frozen:
    """What is written down of the release `name`; `UserError` where there is none."""
    if name not in names():
        raise UserError(f"no release {name!r}", hint=f"known: {', '.join(names())}; or name a directory")
    path = HERE / f"{name}.toml"
    try:
        return Frozen.model_validate(tomllib.loads(path.read_text(encoding="utf-8")))
    except (tomllib.TOMLDecodeError, ValidationError, OSError) as error:
        raise ProblemError(f"{path} is no release: {str(error).splitlines()[0]}") from error


def source_sha256(root: Path = operators.HERE) -> dict[str, str]:
    """The hash of the sources of each operator under `root`, and under `shared` of what makes their contents."""
    found = {SHARED_KEY: _digest([operators.HERE / file for file in operators.SHARED])}
    for name in operators.names(root):
        found[name] = _digest([root / name / file for file in operators.SOURCES])
    return found


def edits(name: str) -> tuple[str, ...]:
    """What was edited since the release was frozen, one line each; empty where it is as it was."""
    was, now = frozen(name).source_sha256, source_sha256()
    lines = [f"{key} was edited since {name} was frozen" for key in was if key in now and was[key] != now[key]]
    lines += [f"{key} was removed since {name} was frozen" for key in was if key not in now]
    return (*lines, *(f"{key} was added since {name} was frozen" for key in now if key not in was))


def check_frozen(name: str) -> None:
    """Refuses, with a `ProblemError`, sources that were edited since the release was frozen."""
    if found := edits(name):
        raise ProblemError(f"{found[0]}" + (f", and {len(found) - 1} more" if len(found) > 1 else ""),
                           hint="a correction is a new release")  # fmt: skip


def _digest(files: list[Path]) -> str:
    """The hash of some files, names and lengths included; a file that is missing counts as empty."""
    digest = hashlib.sha256()
    for path in files:
        data = path.read_bytes() if path.is_file() else b""
        digest.update(f"{path.name} {len(data)}\n".encode())
        digest.update(data)
    return digest.hexdigest()
