"""The numba probe really sees what was compiled, what failed and where the time went.

Its hooks last as long as the process, so whatever starts it runs in a process of its own.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from roofmark import backends

pytest.importorskip("numba")

BACKEND = backends.load("numba")
CANDIDATE = """
import numpy as np
import torch
from numba import njit


@njit(cache=True)
def halve(x, out):
    for i in range(x.size):
        out[i] = np.sqrt(x[i]) / x.dtype.type(2)


@njit(cache=True)
def never(x):
    return x


class Model(torch.nn.Module):
    def forward(self, x):
        out = torch.empty_like(x)
        halve(x.numpy(), out.numpy())
        return out


class Eager(torch.nn.Module):
    def forward(self, x):
        return torch.mm(x.view(1000, -1), x.view(1000, -1).T).clone() + 1
"""
HEAD = """
import importlib.util, json, os, sys, torch


def load(name, path):
    spec = importlib.util.spec_from_file_location(name, path)
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


probe = load("probe", sys.argv[1])
probe.start(sys.argv[2])
candidate = load("candidate", sys.argv[3])
x = torch.rand(16_000_000)
"""
COMPILE = """
before = probe.dump(sys.argv[2])
y = candidate.Model()(x)
print(json.dumps({
    "before": before,
    "names": probe.dump(sys.argv[2]),
    "right": torch.allclose(y, x.sqrt() / 2),
    "hits": sum(candidate.halve.stats.cache_hits.values()),
    "misses": sum(candidate.halve.stats.cache_misses.values()),
}))
"""
ATTRIBUTE = """
own = probe.attribute(lambda: candidate.Model()(x), "cpu")
eager = probe.attribute(lambda: candidate.Eager()(x[:1_000_000]), "cpu")
print(json.dumps({"own": own, "eager": eager}))
"""
FORK = """
child = os.fork()
if child == 0:
    example = load("example", sys.argv[4])
    x = torch.rand(512, 512).bfloat16()
    y = example.Model(1e-6)(x, torch.ones(512, dtype=torch.bfloat16))
    os._exit(0 if y.float().square().mean().sub(1).abs() < 0.01 else 3)
print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""


def run(body: str, cache: Path, candidate: Path, *more: Path) -> Any:
    text = HEAD + body
    environment = {key: value.replace("{cache}", str(cache)) for key, value in BACKEND.environment.items()}
    done = subprocess.run(
        [sys.executable, "-c", text, str(BACKEND.probe), str(cache), str(candidate), *map(str, more)],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


@pytest.fixture(scope="module")
def candidate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("candidate") / "candidate.py"
    path.write_text(CANDIDATE, encoding="utf-8")
    return path


@pytest.fixture(scope="module")
def compiled(candidate: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Any]:
    cache = tmp_path_factory.mktemp("cache")
    return cache, run(COMPILE, cache, candidate)


def test_a_kernel_that_forward_reached_leaves_its_object_code(compiled: tuple[Path, Any]) -> None:
    cache, said = compiled
    assert said["right"]
    assert said["before"] == []
    assert said["names"] == ["halve"]
    (artefact,) = (cache / "artefacts").iterdir()
    assert artefact.suffix in BACKEND.artefact_suffixes
    assert artefact.read_bytes()[1:4] == b"ELF" or sys.platform != "linux"
    assert (said["hits"], said["misses"]) == (0, 1)


def test_a_copied_cache_is_hit_and_dumps_the_same_object(
    compiled: tuple[Path, Any], candidate: Path, tmp_path: Path
) -> None:
    cache, _ = compiled
    copy = tmp_path / "elsewhere"
    shutil.copytree(cache, copy, ignore=shutil.ignore_patterns("artefacts"))
    said = run(COMPILE, copy, candidate)
    assert (said["right"], said["hits"], said["misses"]) == (True, 1, 0)
    assert said["names"] == ["halve"]
    names = [sorted(p.name for p in (folder / "artefacts").iterdir()) for folder in (cache, copy)]
    assert names[0] == names[1]


def test_time_goes_to_whose_it_is(compiled: tuple[Path, Any], candidate: Path) -> None:
    said = run(ATTRIBUTE, compiled[0], candidate)
    classes = {"numba", "framework", "vendor", "copy", "compile", "other"}
    assert set(said["own"]) == set(said["eager"]) == classes
    assert said["own"]["numba"] > 0.75 * sum(said["own"].values())
    assert said["eager"]["numba"] == 0
    assert said["eager"]["vendor"] > said["eager"]["framework"] > 0
    assert said["eager"]["copy"] > 0


def test_a_child_forked_before_any_thread_can_compute(candidate: Path, tmp_path: Path) -> None:
    example = Path(__file__).parents[3] / "examples" / "numba" / "rms_norm.py"
    assert run("import numba\n" + FORK, tmp_path, candidate, example) == 0


def test_what_numba_refuses_is_a_compile_error() -> None:
    from numba import njit
    from numba.core.errors import TypingError

    from roofmark.backends import numba_probe

    @njit
    def wrong(x: Any) -> Any:
        return x.no_such_thing

    with pytest.raises(TypingError) as refused:
        wrong(1)
    wrapped = RuntimeError("the candidate's own words")
    wrapped.__cause__ = refused.value
    assert numba_probe.is_compile_error(refused.value)
    assert numba_probe.is_compile_error(wrapped)
    assert not numba_probe.is_compile_error(ValueError("x"))
    circle = ValueError("x")
    circle.__context__ = KeyError("y")
    circle.__context__.__context__ = circle
    assert not numba_probe.is_compile_error(circle)
