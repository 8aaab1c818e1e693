"""The same on a GPU, at full size: inputs are drawn there, the reference fits, the oracle agrees with it."""

from __future__ import annotations

import pytest
import torch
from operator_check import NAMES, SEED, judge, reference, run

from roofmark import operators

pytestmark = pytest.mark.cuda


def _extremes(name: str) -> list[str]:
    operator = operators.load(name)
    order = sorted(operator.shapes, key=lambda s: sum(operator.work(s.sizes).flops.values()))
    return [order[0].shape_id, order[-1].shape_id]


@pytest.mark.parametrize(("name", "shape_id"), [(n, s) for n in NAMES for s in _extremes(n)])
def test_the_reference_is_right_at_full_size(name: str, shape_id: str) -> None:
    operator = operators.load(name)
    shape = operator.shape(shape_id)
    inputs = operator.make_inputs(shape.sizes, seed=SEED, device="cuda")
    assert all(value.is_cuda for value in inputs.values())
    outputs = run(reference(operator, shape), operator, inputs)
    before = torch.cuda.memory_allocated()
    torch.cuda.reset_peak_memory_stats()
    judged = judge(operator, inputs, shape.sizes, 65)
    assert torch.cuda.max_memory_allocated() - before < 1 << 29
    assert judged.fault({key: value[judged.index] for key, value in outputs.items()}) == ""


@pytest.mark.parametrize("name", NAMES)
def test_the_reference_is_right_on_every_corner_case(name: str) -> None:
    operator = operators.load(name)
    shape = operator.shapes[0]
    for corner, sizes in operator.corners(shape.sizes).items():
        inputs = operator.make_corner(corner, sizes, seed=SEED, device="cuda")
        outputs = run(reference(operator, shape), operator, inputs)
        judged = judge(operator, inputs, sizes)
        assert judged.fault({key: value[judged.index] for key, value in outputs.items()}) == "", corner


def _on_tensor_cores(inputs: dict[str, torch.Tensor], *, fast: bool) -> torch.Tensor:
    """One fp8 product per block of 128, scaled and added up in float32: [m, n] float32."""
    one = torch.ones((), device="cuda")
    total = torch.zeros(len(inputs["a"]), len(inputs["b"]), device="cuda")
    for g in range(inputs["a_scales"].shape[1]):
        part = slice(128 * g, 128 * g + 128)
        a, b = inputs["a"][:, part].contiguous(), inputs["b"][:, part].contiguous().T
        product = torch._scaled_mm(a, b, one, one, out_dtype=torch.float32, use_fast_accum=fast)
        scales = inputs["b_scales"][:, g].repeat_interleave(128)
        total += product * inputs["a_scales"][:, g, None] * scales
    return total


@pytest.mark.parametrize("fast", [True, False])
def test_fp8_tensor_cores_stay_inside_the_bound_of_block_scaled_mm(fast: bool) -> None:
    if torch.cuda.get_device_capability() < (8, 9):
        pytest.skip("no fp8 tensor cores")
    operator = operators.load("block_scaled_mm")
    sizes = {**operator.shapes[0].sizes, "m": 2048, "n": 4096, "k": 4096}
    cases = {"main": (sizes, operator.make_inputs(sizes, seed=SEED, device="cuda"))}
    for corner in operator.corners(sizes):
        cases[corner] = (small := {**sizes, "m": 64}, operator.make_corner(corner, small, seed=SEED, device="cuda"))
    for case, (these, inputs) in cases.items():
        total = _on_tensor_cores(inputs, fast=fast)
        judged = judge(operator, inputs, these, 2048)
        expected = judged.expected["out"]
        room = expected.bound - expected.value.abs() * torch.finfo(torch.bfloat16).eps / 2
        used = (total.double() - expected.value).abs() / room.clamp(min=1e-300)
        assert used.max() < 0.8, f"{case}: {used.max().item():.3g} of the room for products"
        assert judged.fault({"out": total.bfloat16()[judged.index]}) == "", case
