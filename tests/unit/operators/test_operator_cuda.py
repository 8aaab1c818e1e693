"""The same on a GPU, at full size: inputs are drawn there, answers judged there, in little memory."""

from __future__ import annotations

import pytest
import torch
from operator_check import SEED

from roofmark import operators
from roofmark.evaluate.correctness import check_outputs
from roofmark.evaluate.lint import lint
from roofmark.operators.expected import Expected

pytestmark = pytest.mark.cuda


@pytest.mark.parametrize("name", operators.names())
def test_an_operator_is_proven_on_its_cheapest_and_its_dearest_shape(name: str) -> None:
    operator = operators.load(name)
    order = sorted(operator.shapes, key=lambda s: (sum(operator.work(s.sizes).flops.values()), s.shape_id))
    (proof,) = lint([(operator, [order[0], order[-1]])], device="cuda", watch=lambda _: None)
    assert [fault.line for fault in proof.faults] == []


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
        index = torch.arange(len(total), device="cuda")
        expected: Expected = operator.expected_rows(inputs, these, index)["out"]
        assert expected.bound is not None
        room = expected.bound - expected.value.abs() * torch.finfo(torch.bfloat16).eps / 2
        used = (total.double() - expected.value).abs() / room.clamp(min=1e-300)
        assert used.max() < 0.8, f"{case}: {used.max().item():.3g} of the room for products"
        check = check_outputs(operator, inputs, these, {"out": total.bfloat16()}, None)
        assert check.finding is None, f"{case}: {check.finding}"
