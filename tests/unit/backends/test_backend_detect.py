"""A file is judged as the language that it is written in, or told that this device does not run it."""

from __future__ import annotations

from pathlib import Path

import pytest

from roofmark import backends
from roofmark.backends import Backend
from roofmark.errors import UserError

EARLIER = Backend("alpha", ("alpha_dsl",), ("cpu", "cuda"), (".o",), Path("alpha_probe.py"), "pip install alpha")


@pytest.fixture
def plug_in(monkeypatch: pytest.MonkeyPatch) -> None:
    """A plug-in that comes first in the alphabet and runs everywhere."""
    known = backends.load
    monkeypatch.setattr(backends, "names", lambda: ("alpha", "numba", "triton"))
    monkeypatch.setattr(backends, "load", lambda name: EARLIER if name == "alpha" else known(name))


@pytest.mark.parametrize(
    ("source", "device", "name"),
    [
        ("import torch, numba", "cpu", "numba"),
        ("from numba.core import types", "cpu", "numba"),
        ("import triton.language as tl", "cuda", "triton"),
        ("def f():\n    from triton import jit", "cuda", "triton"),
        ("import numba\nimport triton", "cpu", "numba"),
        ("import numba\nimport triton", "cuda", "triton"),
        ("import torch", "cpu", "numba"),
        ("import torch", "cuda", "triton"),
        ("from .triton import x", "cpu", "numba"),
        ("no python", "cuda", "triton"),
        ("-" * 100_000 + "1", "cpu", "numba"),
        ("import alpha_dsl", "cpu", "alpha"),
    ],
)
@pytest.mark.usefixtures("plug_in")
def test_the_language_is_the_imported_one_or_the_devices_default(source: str, device: str, name: str) -> None:
    assert backends.detect(source, device).name == name


@pytest.mark.parametrize(("language", "there", "here"), [("triton", "cuda", "cpu"), ("numba", "cpu", "cuda")])
def test_a_language_of_another_device_is_said(language: str, there: str, here: str) -> None:
    with pytest.raises(UserError) as refused:
        backends.detect(f"import torch\nimport {language}", here, "x.py")
    assert refused.value.message == f"x.py is written in {language}, which runs on {there} and not on {here}"
    assert refused.value.hint == f"use --device {there}, or say with --backend what it is written in"


def test_a_device_without_a_default_is_said() -> None:
    with pytest.raises(UserError, match="no backend is the default on npu; name one with --backend"):
        backends.detect("import torch", "npu")
