"""The numba examples are right by the operators' own oracles, and their small floats are right for every code."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch
from example_cases import EMPTY, INIT, example, fault, runs

numba = pytest.importorskip("numba")


@pytest.fixture(scope="module", autouse=True)
def _cache(request: pytest.FixtureRequest) -> Iterator[None]:
    """A cache of the tests' own, kept between runs: numba's is bound to the name a module was imported under."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("NUMBA_CACHE_DIR", str(request.config.cache.mkdir("numba")))
        numba.config.reload_config()
        yield
    numba.config.reload_config()


@pytest.mark.parametrize("name", INIT)
def test_an_example_is_right(name: str) -> None:
    model = example("numba", name).Model(**INIT[name])
    faults = {title: fault(model, name, corner, sizes) for title, corner, sizes in runs(name)}
    assert {title: said for title, said in faults.items() if said} == {}


@pytest.mark.parametrize("name", INIT)
def test_an_example_takes_no_tokens(name: str) -> None:
    made = example("numba", name).Model(**INIT[name])(*EMPTY[name])
    assert all(out.shape[0] == 0 for out in (made if isinstance(made, tuple) else (made,)))


def test_strided_inputs_are_read_as_they_are() -> None:
    model = example("numba", "rms_norm").Model(1e-6)
    x, weight = torch.randn(8, 64).bfloat16(), torch.randn(32).bfloat16()
    assert torch.equal(model(x[:, :32], weight), model(x[:, :32].clone(), weight))


def apply(function: Any, values: np.ndarray, kind: type) -> np.ndarray:
    @numba.njit
    def loop(values: np.ndarray, out: np.ndarray) -> np.ndarray:
        for i in range(values.size):
            out[i] = function(values[i])
        return out

    out: np.ndarray = loop(values, np.empty(values.size, kind))
    return out


def same(left: torch.Tensor, right: torch.Tensor) -> bool:
    """Equal bit for bit, all NaN alike."""
    nan = left.isnan() & right.isnan()
    kind = {1: torch.uint8, 2: torch.int16, 4: torch.int32}[left.element_size()]
    return bool((nan | (left.view(kind) == right.view(kind))).all())


@pytest.mark.parametrize(
    ("name", "function", "dtype"),
    [
        ("rms_norm", "decode", torch.bfloat16),
        ("paged_attention_decode", "decode", torch.bfloat16),
        ("paged_attention_decode", "decode_half", torch.float16),
        ("block_scaled_mm", "decode_fp8", torch.float8_e4m3fn),
    ],
)
def test_every_code_is_decoded_as_torch_does(name: str, function: str, dtype: torch.dtype) -> None:
    codes = np.arange(256, dtype=np.uint8) if dtype.itemsize == 1 else np.arange(65536).astype(np.uint16)
    got = apply(getattr(example("numba", name), function), codes, np.float32)
    assert same(torch.from_numpy(got), torch.from_numpy(codes).view(dtype).float())


def dense_floats() -> torch.Tensor:
    """Every upper half of a float32, each with lower halves on, beside and between the places of rounding."""
    lower = torch.tensor([0, 1, 0xFFF, 0x1000, 0x1001, 0x2000, 0x3000, 0x7FFF, 0x8000, 0x8001, 0xFFFF])
    bits = (torch.arange(65536)[:, None] << 16 | lower).flatten()
    return (bits - (bits >> 31 << 32)).to(torch.int32).view(torch.float32)


@pytest.mark.parametrize(
    ("name", "function", "dtype"),
    [
        ("rms_norm", "encode", torch.bfloat16),
        ("paged_attention_decode", "encode", torch.bfloat16),
        ("paged_attention_decode", "encode_half", torch.float16),
    ],
)
def test_floats_are_encoded_as_torch_does(name: str, function: str, dtype: torch.dtype) -> None:
    values = dense_floats()
    got = apply(getattr(example("numba", name), function), values.numpy(), np.uint16)
    assert same(torch.from_numpy(got).view(dtype), values.to(dtype))


@pytest.mark.parametrize("name", ["silu_and_mul", "attention_forward", "moe_topk_gating_softmax"])
def test_the_exponential_is_within_one_unit_in_the_last_place(name: str) -> None:
    x = np.linspace(-87.3, 88.3, 1_000_001).astype(np.float32)
    right = np.exp(x.astype(np.float64))
    got = apply(example("numba", name).exp, x, np.float32)
    assert (np.abs(got - right) <= 2.0**-23 * right).all()
    special = np.array([np.inf, -np.inf, np.nan, 0.0, 200.0, -200.0], np.float32)
    got = apply(example("numba", name).exp, special, np.float32)
    np.testing.assert_array_equal(got, np.array([np.inf, 0, np.nan, 1, np.inf, 0], np.float32))
