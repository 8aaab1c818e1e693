"""The Triton probe notes what is compiled, copies the cubins, and counts a kernel's time for its owner."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from roofmark import backends

triton = pytest.importorskip("triton")

BACKEND = backends.load("triton")
CANDIDATE = """
import triton
import triton.language as tl


@triton.jit
def _double(x, y, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(y + at, tl.load(x + at) * 2)


@triton.jit
def _wrong(x, y, BLOCK: tl.constexpr):
    tl.store(y, tl.no_such_thing(x))


@triton.jit
def _never(x, y, BLOCK: tl.constexpr):
    tl.store(y, tl.load(x))
"""
COMPILE = """
import importlib.util, json, sys
import triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource


def load(name, path):
    spec = importlib.util.spec_from_file_location(name, path)
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


def compile(kernel):
    types = {"x": "*fp32", "y": "*fp32", "BLOCK": "constexpr"}
    return triton.compile(ASTSource(kernel, types, {"BLOCK": 128}), target=GPUTarget("cuda", 90, 32))


probe = load("probe", sys.argv[1])
probe.start(sys.argv[2])
candidate = load("candidate", sys.argv[3])
before = probe.dump(sys.argv[2])
compile(candidate._double)
refused = False
try:
    compile(candidate._wrong)
except Exception as error:
    refused = probe.is_compile_error(error)
names = probe.dump(sys.argv[2])
print(json.dumps([before, names, refused, probe.is_compile_error(ValueError()), probe.attribute(dict, "cpu")]))
"""


def test_a_compiled_kernel_leaves_its_cubin(tmp_path: Path) -> None:
    candidate, cache = tmp_path / "candidate.py", tmp_path / "cache"
    candidate.write_text(CANDIDATE, encoding="utf-8")
    environment = {key: value.replace("{cache}", str(cache)) for key, value in BACKEND.environment.items()}
    done = subprocess.run(
        [sys.executable, "-c", COMPILE, str(BACKEND.probe), str(cache), str(candidate)],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    before, names, refused, other, times = json.loads(done.stdout.splitlines()[-1])
    assert (before, names, refused, other, times) == ([], ["_double"], True, False, {})
    (artefact,) = (cache / "artefacts").iterdir()
    assert artefact.suffix in BACKEND.artefact_suffixes
    assert artefact.read_bytes()[1:4] == b"ELF"
    assert any((cache / "triton").rglob("*.cubin"))


def test_device_time_is_counted_for_the_kernels_owner() -> None:
    from roofmark.backends.triton_probe import classify

    events = [
        ("_rms_norm", 5.0),
        ("void at::native::vectorized_elementwise_kernel<4>(int)", 3.0),
        ("sm90_xmma_gemm_bf16bf16_bf16f32", 7.0),
        ("nvjet_hsh_128x256_64x4", 1.0),
        ("Memcpy DtoD (Device -> Device)", 2.0),
        ("triton_poi_fused_add_0", 4.0),
        ("somebody_elses", 6.0),
    ]
    sums = classify(events, {"_rms_norm"}, Counter({"_rms_norm": 1}))
    assert sums == {"triton": 5, "framework": 3, "vendor": 8, "copy": 2, "compile": 4, "other": 6}


def test_a_kernel_named_like_a_librarys_counts_as_often_as_it_was_launched() -> None:
    from roofmark.backends.triton_probe import classify

    name = "nvjet_hsh_128x256_64x4"
    sums = classify([(name, 1.0), (name, 50.0)], {name}, Counter({name: 1}))
    assert (sums["triton"], sums["vendor"]) == (1.0, 50.0)


def test_a_kernel_in_a_graph_counts_although_no_launch_was_seen() -> None:
    from roofmark.backends.triton_probe import classify

    assert classify([("_mine", 2.0)], {"_mine"}, Counter())["triton"] == 2.0


@pytest.mark.cuda
def test_an_examples_time_is_tritons(tmp_path: Path) -> None:
    import torch

    from roofmark.backends import triton_probe

    path = Path(__file__).parents[3] / "examples" / "triton" / "rms_norm.py"
    namespace: dict[str, object] = {}
    triton_probe.start(str(tmp_path))
    source = compile(path.read_text(encoding="utf-8"), str(path), "exec")
    exec(source, namespace)
    x, weight = torch.randn(4096, 1024, device="cuda").bfloat16(), torch.ones(1024, device="cuda").bfloat16()
    model = namespace["Model"](1e-6)  # type: ignore[operator]
    times = triton_probe.attribute(lambda: model(x, weight), "cuda")
    assert times["triton"] > 0.99 * sum(times.values())
    assert triton_probe.dump(str(tmp_path)) == ["_rms_norm"]
    eager = triton_probe.attribute(lambda: (x @ x.T).clone() + 1, "cuda")
    assert eager["triton"] == 0
    assert min(eager["vendor"], eager["framework"]) > 0
