"""An operator of five files, made ready to be judged: its reference in float64 is the oracle.

The files are code of whoever wrote the set; they run in the referee, and are trusted as far as a release is.
"""

from __future__ import annotations

import inspect
import json
import random
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

from roofmark.errors import ProblemError
from roofmark.operators import Operator, fresh_module
from roofmark.records import OutputSpec, Work
from roofmark.releases.contract import FiveFiles, read

if TYPE_CHECKING:
    from torch import Tensor

    from roofmark.operators.expected import Expected

Sizes = dict[str, Any]
# what can't be looked at where five files are all there is
UNAVAILABLE = (
    "no error model: the reference in float64 (as it is, where it does not run so) under the elementwise rule",
    "no corner cases but those that input.py names",
    "no hidden neighbours of a shape",
)


def load(folder: Path) -> Operator:
    """The operator of a folder of five files."""
    files = read(folder)
    parts = Parts(files)
    return Operator(folder, files.spec, files.shapes, files.provenance, lambda _: parts)


@dataclass(eq=False)
class Parts:
    """What an operator's folder would define: inputs, works and oracle, out of the five files."""

    files: FiveFiles
    WHOLE: bool = True  # the reference gives all rows at once
    kinds: dict[str, tuple[OutputSpec, ...]] = field(default_factory=dict)

    @cached_property
    def model(self) -> Callable[..., Any]:
        """The class `Model` of the reference."""
        path = self.files.folder / "reference.py"
        found: Callable[..., Any] = attribute(fresh_module(path.parent, path.stem), "Model", path)
        return found

    @cached_property
    def input_module(self) -> ModuleType:
        """The module `input.py`."""
        return fresh_module(self.files.folder, "input")

    def work(self, **sizes: Any) -> Work:
        """The work of a shape of the set; of other sizes, such as a corner case's, none is known."""
        shape_id = self.shape_id(sizes)
        return self.files.works[shape_id] if shape_id else Work(flops={}, bytes_read=0, bytes_written=0)

    def work_published(self, **sizes: Any) -> Work:
        """The published work of a shape, where the files have two."""
        shape_id = self.shape_id(sizes)
        return self.files.works_published[shape_id] if shape_id else self.work(**sizes)

    def shape_id(self, sizes: Sizes) -> str:
        """The shape that has these sizes, "" where none has."""
        return self._ids.get(canonical(sizes), "")

    @cached_property
    def _ids(self) -> dict[str, str]:
        return {canonical(shape.sizes): shape.shape_id for shape in self.files.shapes}

    def init(self, sizes: Sizes) -> Sizes:
        """The arguments of `Model` among some sizes."""
        keys = {key for shape in self.files.shapes for key in shape.init}
        return {key: value for key, value in sizes.items() if key in keys}

    def make_inputs(self, *, seed: int, device: str, **sizes: Any) -> dict[str, Tensor]:
        """What `_make_inputs` draws under a seed, named as `forward` names it."""
        shape_id = self.shape_id(sizes)
        given = self.files.input_kwargs[shape_id] if shape_id else sizes
        make = attribute(self.input_module, "_make_inputs", self.files.folder / "input.py")
        known = inspect.signature(make).parameters
        extra = {key: value for key, value in (("seed", seed), ("device", device)) if key in known and key not in given}
        with seeded(seed):
            return self.named(make(**given, **extra), device)

    def named(self, made: Any, device: str) -> dict[str, Tensor]:
        """Tensors by the names of `forward`'s parameters, on a device."""
        import torch

        names = [*inspect.signature(self.model.forward).parameters][1:]  # type: ignore[attr-defined]
        values = [made] if isinstance(made, torch.Tensor) else made
        items = list(values.items()) if isinstance(values, Mapping) else list(zip(names, values, strict=False))
        count = len(values)
        if len(items) != count or not all(isinstance(value, torch.Tensor) for _, value in items):
            what = f"_make_inputs must return a tensor for each of forward's {len(names)} parameters"
            raise ProblemError(f"{self.files.folder / 'input.py'}: {what}")
        return {key: value.detach().contiguous().to(device) for key, value in items}

    def corners(self, **sizes: Any) -> dict[str, Sizes]:
        """The corner cases of `input.py`, none where it names none."""
        found = getattr(self.input_module, "corners", None)
        return found(**sizes) if found and hasattr(self.input_module, "make_corner") else {}

    def make_corner(self, name: str, *, seed: int, device: str, **sizes: Any) -> dict[str, Tensor]:
        """The inputs of a corner case."""
        with seeded(seed):
            return self.named(self.input_module.make_corner(name, **sizes, seed=seed, device=device), device)

    def neighbours(self, rng: random.Random, **sizes: Any) -> tuple[Sizes, ...]:
        """None: which sizes go together is not written down."""
        return ()

    def outputs(self, **sizes: Any) -> tuple[OutputSpec, ...]:
        """Shape and dtype of what the reference returns, from one run of it."""
        import torch

        key = canonical(sizes)
        if key not in self.kinds:
            device = "cuda" if torch.cuda.is_available() else "cpu"
            made = self.run(self.make_inputs(seed=0, device=device, **sizes), sizes, wide=False)
            self.kinds[key] = tuple(
                OutputSpec(name=name, shape=tuple(out.shape), dtype=str(out.dtype).removeprefix("torch."))
                for name, out in made.items()
            )
        return self.kinds[key]

    def run(self, inputs: Mapping[str, Tensor], sizes: Sizes, *, wide: bool) -> dict[str, Tensor]:
        """The reference's outputs by name, on copies of the inputs; `wide`: all that is floating in float64."""
        import torch

        with torch.no_grad(), seeded(0):
            model = self.model(**self.init(sizes)).to(next(iter(inputs.values())).device)
            model = model.double() if wide else model
            made = model(*(t.double() if wide and t.is_floating_point() else t.clone() for t in inputs.values()))
        outs = list(made) if isinstance(made, (list, tuple)) else [made]
        if not outs or not all(isinstance(out, torch.Tensor) and out.dim() for out in outs):
            raise ProblemError(f"{self.files.folder / 'reference.py'}: forward must return tensors with rows")
        names = self.files.spec.outputs
        if len(names) != len(outs):
            names = ("out",) if len(outs) == 1 else tuple(f"out{i}" for i in range(len(outs)))
        return dict(zip(names, outs, strict=True))

    def expected_rows(self, inputs: Mapping[str, Tensor], sizes: Sizes, index: Tensor) -> dict[str, Expected]:
        """What the reference says in float64; whole numbers as it says them at its own types, to be met exactly."""
        plain = self.run(inputs, sizes, wide=False)
        try:
            wide = self.run(inputs, sizes, wide=True)
        except Exception:  # noqa: BLE001 - whatever its code does with types that it was not written for
            wide = plain
        same = all(wide[key].shape == plain[key].shape for key in plain)
        return {key: expect(plain[key], (wide if same else plain)[key]) for key in plain}


def expect(plain: Tensor, wide: Tensor) -> Expected:
    """A value with its bound: none of its own beside the elementwise rule; a code's distance in fp8; 0 for integers."""
    import torch

    from roofmark.operators.expected import Expected

    if not plain.is_floating_point() or not wide.is_floating_point():
        return Expected(plain, None)
    value = wide.double()
    if plain.dtype.itemsize > 1:
        return Expected(value, torch.full_like(value, float("inf")))
    info = torch.finfo(plain.dtype)
    value = plain.double()
    step = value.abs().log2().floor().exp2().mul(info.eps)  # to the next larger code; near zero all lie as far apart
    return Expected(value, step.clamp_min(info.smallest_normal * info.eps), True)


@contextmanager
def seeded(seed: int) -> Iterator[None]:
    """A context in which torch's, numpy's and Python's own generators follow from a seed, and are put back after."""
    import numpy
    import torch

    state, numbers = random.getstate(), numpy.random.get_state()
    with torch.random.fork_rng():
        torch.manual_seed(seed & (2**63 - 1))
        numpy.random.seed(seed & (2**32 - 1))
        random.seed(seed)
        try:
            yield
        finally:
            random.setstate(state)
            numpy.random.set_state(numbers)


def canonical(sizes: Mapping[str, Any]) -> str:
    """Sizes as a text that is the same for the same sizes."""
    return json.dumps(sizes, sort_keys=True, default=str)


def attribute(found: ModuleType, name: str, path: Path) -> Any:
    """What a module defines under a name; `ProblemError` where it does not."""
    if not hasattr(found, name):
        raise ProblemError(f"{path} defines no {name}")
    return getattr(found, name)
