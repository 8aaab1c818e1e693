"""The operators: one folder each. `names()` lists them, `load(name)` gives one.

A folder holds `operator.toml`, `shapes.toml`, `provenance.toml`, `reference.py`, `inputs.py`, `work.py`
and `oracle.py`; beside them lies what proves it, `zoo.py` (see `roofmark.operators.zoo`) and `second.py`, which
are no part of its contents. Nothing here imports torch until inputs or expected values are asked for.
"""

from __future__ import annotations

import hashlib
import importlib.util
import random
import sys
import tomllib
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any, TypeVar

from pydantic import ValidationError

from roofmark.errors import ProblemError, UserError
from roofmark.records import OperatorSpec, OutputSpec, Provenance, Record, Shape, Work

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from torch import Tensor

HERE = Path(__file__).parent
SOURCES = (
    "operator.toml",
    "shapes.toml",
    "provenance.toml",
    "reference.py",
    "inputs.py",
    "work.py",
    "oracle.py",
)
# what operators share and what makes their contents with them
SHARED = ("draw.py", "experts.py", "fp8.py", "fp8_rows.py", "routing.py", "spans.py")
FP8 = "float8_e4m3fn"

Sizes = dict[str, Any]
R = TypeVar("R", bound=Record)


@dataclass(frozen=True)
class Operator:
    """One operator: its records, and its functions as the folder's modules define them.

    `parts` gives what a module would define where the folder has none, for sets that others wrote.
    """

    folder: Path
    spec: OperatorSpec
    shapes: tuple[Shape, ...]
    provenance: Provenance
    parts: Callable[[str], Any] | None = None

    def _part(self, stem: str) -> Any:
        return _module(self.folder, stem) if self.parts is None else self.parts(stem)

    @property
    def name(self) -> str:
        """The operator's name, which is its folder's."""
        return self.spec.name

    def shape(self, shape_id: str) -> Shape:
        """The shape with this id; `UserError` where there is none."""
        for shape in self.shapes:
            if shape.shape_id == shape_id:
                return shape
        ids = ", ".join(s.shape_id for s in self.shapes)
        raise UserError(f"{self.name} has no shape {shape_id!r}", hint=f"it has {ids}")

    def reference_text(self) -> str:
        """The source of the reference `Model`: the visible meaning, and the `oracle` candidate."""
        path = self.folder / "reference.py"
        try:
            return path.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise ProblemError(f"{path} can't be read: {error}") from error

    def work(self, sizes: Sizes) -> Work:
        """FLOPs and compulsory bytes by the reference's meaning: the figures that score."""
        result: Work = self._part("work").work(**sizes)
        return result

    def work_published(self, sizes: Sizes) -> Work:
        """FLOPs and bytes as published with the paper: a check, never a score."""
        result: Work = self._part("work").work_published(**sizes)
        return result

    def make_inputs(self, sizes: Sizes, *, seed: int, device: str) -> dict[str, Tensor]:
        """Named inputs in the order of `forward`'s parameters, all on `device`."""
        result: dict[str, Tensor] = self._part("inputs").make_inputs(**sizes, seed=seed, device=device)
        return result

    def corners(self, sizes: Sizes) -> dict[str, Sizes]:
        """Named corner cases of a shape, each with the sizes it runs at."""
        result: dict[str, Sizes] = self._part("inputs").corners(**sizes)
        return result

    def make_corner(self, name: str, sizes: Sizes, *, seed: int, device: str) -> dict[str, Tensor]:
        """The inputs of the corner case `name` at the sizes that `corners` gave for it."""
        result: dict[str, Tensor] = self._part("inputs").make_corner(name, **sizes, seed=seed, device=device)
        return result

    def outputs(self, sizes: Sizes, device: str = "cpu") -> tuple[OutputSpec, ...]:
        """Shape and dtype of every output on `device`, in the order that `forward` returns them.

        An fp8 output is declared as `float8_e4m3fn` and is of the device's own e4m3 type.
        """
        result: tuple[OutputSpec, ...] = self._part("inputs").outputs(**sizes)
        if device == "cpu" or all(spec.dtype != FP8 for spec in result):
            return result
        from roofmark.operators import fp8

        own = str(fp8.kind(device)).removeprefix("torch.")
        return tuple(spec.model_copy(update={"dtype": own}) if spec.dtype == FP8 else spec for spec in result)

    def neighbours(self, sizes: Sizes, rng: random.Random) -> tuple[Sizes, ...]:
        """Two hidden sizes near `sizes`, drawn anew for each run."""
        result: tuple[Sizes, ...] = self._part("oracle").neighbours(rng, **sizes)
        return result

    def expected_rows(self, inputs: Mapping[str, Tensor], sizes: Sizes, index: Tensor) -> Mapping[str, Any]:
        """`Expected` of each output for the rows that `rows_of` names for `index`, in float64."""
        result: Mapping[str, Any] = self._part("oracle").expected_rows(inputs, sizes, index)
        return result

    @property
    def whole(self) -> bool:
        """Whether all rows of all outputs must be looked at together, as the oracle's `WHOLE` says."""
        return bool(getattr(self._part("oracle"), "WHOLE", False))

    def rows_of(self, sizes: Sizes, index: Tensor) -> Mapping[str, Tensor]:
        """The rows of each output that belong to the rows `index` of the first.

        All rows where the operator is `whole`; else as the oracle's own `rows_of` says; else the same rows, which
        needs outputs of one leading dimension.
        """
        import torch

        specs = self.outputs(sizes)
        if self.whole:
            return {spec.name: torch.arange(spec.shape[0], device=index.device) for spec in specs}
        rows_of = getattr(self._part("oracle"), "rows_of", None)
        if rows_of is not None:
            result: Mapping[str, Tensor] = rows_of(sizes, index)
            return result
        if len({spec.shape[0] for spec in specs}) > 1:
            raise ProblemError(f"the outputs of {self.name} differ in rows", hint="its oracle needs WHOLE or rows_of")
        return {spec.name: index for spec in specs}

    def judge_rows(
        self, inputs: Mapping[str, Tensor], sizes: Sizes, index: Tensor, outputs: Mapping[str, Tensor]
    ) -> str | None:
        """What is wrong with `outputs` (rows `rows_of(index)`), "" if nothing; None where `expected_rows` decides.

        An operator that has this checker is judged by it alone: its answers are not unique, and what
        `expected_rows` gives is one right answer of several.
        """
        judge = getattr(self._part("oracle"), "judge_rows", None)
        return None if judge is None else str(judge(inputs, sizes, index, outputs))

    @property
    def checker(self) -> bool:
        """Whether a checker judges its answers: `judge_rows` is there."""
        return hasattr(self._part("oracle"), "judge_rows")

    def proof(self, stem: str) -> ModuleType | None:
        """The folder's module `zoo` or `second`; None where it has no such file."""
        return _module(self.folder, stem) if (self.folder / f"{stem}.py").is_file() else None


def names(root: Path = HERE) -> tuple[str, ...]:
    """The names of the operators under `root`, sorted."""
    return tuple(sorted(p.parent.name for p in root.glob("*/operator.toml")))


@cache
def load(name: str, root: Path = HERE) -> Operator:
    """The operator `name` of `root`; `UserError` if unknown, `ProblemError` if its files are malformed."""
    if name not in names(root):
        raise UserError(f"no operator {name!r}", hint=f"known: {', '.join(names(root)) or 'none'}")
    folder = root / name
    for file in SOURCES:
        if not (folder / file).is_file():
            raise ProblemError(f"{folder} has no {file}", hint="an operator needs all of " + ", ".join(SOURCES))
    shapes = _toml(folder / "shapes.toml").get("shape", [])
    if not isinstance(shapes, list) or not all(isinstance(s, dict) for s in shapes):
        raise ProblemError(f"{folder / 'shapes.toml'}: shape is no list of tables", hint="write [[shape]]")
    operator = Operator(
        folder=folder,
        spec=_record(OperatorSpec, _toml(folder / "operator.toml"), folder / "operator.toml"),
        shapes=tuple(_record(Shape, {**s, "operator": name}, folder / "shapes.toml") for s in shapes),
        provenance=_record(Provenance, _toml(folder / "provenance.toml"), folder / "provenance.toml"),
    )
    if operator.spec.name != name:
        raise ProblemError(f"{folder / 'operator.toml'} names {operator.spec.name!r}, its folder {name!r}")
    if not operator.shapes:
        raise ProblemError(f"{folder / 'shapes.toml'} lists no shape")
    ids = [shape.shape_id for shape in operator.shapes]
    if len(set(ids)) < len(ids):
        raise ProblemError(f"{folder / 'shapes.toml'} lists a shape_id twice")
    return operator


def content_sha256(root: Path = HERE) -> str:
    """The hash of every source file of every operator under `root`, and of what they share."""
    digest = hashlib.sha256()
    for file in SHARED:
        digest.update((HERE / file).read_bytes())
    for name in names(root):
        for file in SOURCES:
            path = root / name / file
            data = path.read_bytes() if path.is_file() else b""
            digest.update(f"{name}/{file} {len(data)}\n".encode())
            digest.update(data)
    return digest.hexdigest()


@cache
def _module(folder: Path, stem: str) -> ModuleType:
    return fresh_module(folder, stem)


def fresh_module(folder: Path, stem: str) -> ModuleType:
    """A new copy of the module `stem` of an operator's folder; `ProblemError` where it can't be loaded."""
    name = f"roofmark_operator_{folder.name}_{stem}_{hashlib.sha256(str(folder).encode()).hexdigest()[:8]}"
    spec = importlib.util.spec_from_file_location(name, folder / f"{stem}.py")
    if spec is None or spec.loader is None:
        raise ProblemError(f"{folder / stem}.py can't be loaded")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    except Exception as error:
        del sys.modules[name]
        raise ProblemError(f"{folder / stem}.py can't be loaded: {type(error).__name__}: {error}") from error
    return module


def _toml(path: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, RecursionError) as error:
        raise ProblemError(f"{path} is not TOML: {error}") from error
    except OSError as error:
        raise ProblemError(f"{path} can't be read: {error.strerror}") from error


def _record(kind: type[R], data: dict[str, Any], path: Path) -> R:
    try:
        return kind.model_validate(data)
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(str(part) for part in first["loc"])
        raise ProblemError(f"{path}: {where}: {first['msg']}") from error
