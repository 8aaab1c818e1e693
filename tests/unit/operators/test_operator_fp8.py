"""The fp8 type of a device, codes of it, and what a checker of codes and scales lets pass."""

from __future__ import annotations

import pytest
import torch

from roofmark import operators
from roofmark.operators import fp8
from roofmark.operators.draw import Draw

KINDS = (fp8.FN, fp8.FNUZ)
QUANTISING = ("fp8_dynamic_per_token_quant", "per_token_group_quant_fp8", "fused_rmsnorm_quant")


@pytest.fixture(params=KINDS, ids=str)
def own(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> torch.dtype:
    """This type taken for the machine's own."""
    monkeypatch.setattr(fp8, "kind", lambda device: request.param)
    return request.param


def every_code(dtype: torch.dtype) -> torch.Tensor:
    return torch.arange(256).to(torch.uint8).view(dtype).double()


@pytest.mark.parametrize("dtype", KINDS)
def test_codes_stand_for_what_torch_says(dtype: torch.dtype) -> None:
    codes = torch.arange(256).to(torch.uint8).view(16, 16).view(dtype)
    for some in (codes, codes.T, codes[:, 3:5]):
        wide, right = fp8.wide(some), some.float()
        assert wide.dtype == torch.float32
        assert torch.allclose(wide, right, rtol=0, atol=0, equal_nan=True)
        assert torch.equal(wide.signbit() | wide.isnan(), right.signbit() | right.isnan())


@pytest.mark.parametrize(
    ("architecture", "dtype"),
    [("gfx942:sramecc+:xnack-", fp8.FNUZ), ("gfx940", fp8.FNUZ), ("gfx950", fp8.FN), ("gfx90a", fp8.FN), ("", fp8.FN)],
)
def test_gfx94x_has_a_type_of_its_own(architecture: str, dtype: torch.dtype) -> None:
    assert fp8.kind_of(architecture) == dtype


def test_outputs_are_of_the_device_s_type(own: torch.dtype) -> None:
    for name in QUANTISING:
        operator = operators.load(name)
        assert operator.outputs(operator.shapes[0].sizes)[0].dtype == "float8_e4m3fn"
        specs = operator.outputs(operator.shapes[0].sizes, "cuda")
        assert f"torch.{specs[0].dtype}" == str(own)
        assert specs[1].dtype == "float32"


def test_drawn_codes_are_the_largest_64_of_both_signs(own: torch.dtype) -> None:
    drawn = fp8.codes(Draw(3, "cpu"), "x", (1 << 14,), own).double()
    codes = every_code(own)
    sizes = torch.unique(codes[codes.isfinite()].abs())[-64:]
    assert drawn.unique().equal(torch.cat([-sizes.flip(0), sizes]))
    assert fp8.codes_rms(own) == pytest.approx(float(drawn.square().mean().sqrt()), rel=0.02)
    assert sizes[-1] == fp8.largest(own) == every_code(own)[fp8.largest_code(own)]


def test_minus_zero_is_no_nan(own: torch.dtype) -> None:
    bits = torch.tensor([0x80, 0x00, 0x81, 0x7E], dtype=torch.uint8)
    fp8.drop_nan(bits, own)
    assert bits.view(own).double()[:2].tolist() == [0.0, 0.0]
    assert bits[2:].tolist() == [0x81, 0x7E]


def test_rounding_is_to_the_nearest_and_saturates(own: torch.dtype) -> None:
    codes = every_code(own)
    codes = torch.unique(codes[codes.isfinite()])
    values = torch.cat([codes * 1.001, torch.linspace(-600, 600, 9001, dtype=torch.float64), codes])
    nearest = (values.clamp(codes[0], codes[-1]).unsqueeze(1) - codes).abs().amin(1)
    assert ((fp8.rounded(values, own) - values.clamp(codes[0], codes[-1])).abs() <= nearest * (1 + 1e-6)).all()


@pytest.mark.parametrize("name", ["block_scaled_mm", *QUANTISING])
def test_inputs_and_oracles_hold_no_nan(name: str, own: torch.dtype) -> None:
    operator = operators.load(name)
    for corner, sizes in operator.corners(operator.shapes[0].sizes).items():
        inputs = operator.make_corner(corner, sizes, seed=7, device="cpu")
        for key, value in inputs.items():
            assert value.dtype in (own, torch.float32, torch.bfloat16), key
            assert value.double().isfinite().all(), (corner, key)
        count = operator.outputs(sizes)[0].shape[0]
        for key, expected in operator.expected_rows(inputs, sizes, torch.arange(count)).items():
            assert expected.value.isfinite().all(), (corner, key)


def quantised(rows: int, own: torch.dtype, seed: int = 1) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """x [rows, 1, 256] float64 with bfloat16 values, its codes and scales."""
    x = Draw(seed, "cpu").uniform("x", (rows, 1, 256), torch.bfloat16)
    scale = x.abs().amax(-1).float() / fp8.largest(own)
    return x.double(), (x.float() / scale.unsqueeze(-1)).to(own), scale


def right(x: torch.Tensor, q: torch.Tensor, scale: torch.Tensor) -> bool:
    scales, codes = fp8.judge(fp8.Magnitudes.of(x), q, scale, scale_tolerance=1e-3, tie=2.0**-14)
    said = fp8.fault(fp8.Magnitudes.of(x), q, scale, torch.arange(len(x)), scale_tolerance=1e-3, tie=2.0**-14)
    assert (said == "") == bool(scales.all() and codes.all())
    return said == ""


def test_each_neighbour_of_a_code_is_wrong_unless_it_is_as_near(own: torch.dtype) -> None:
    x, q, scale = quantised(64, own)
    assert right(x, q, scale)
    quotient = x / scale.double().unsqueeze(-1)
    for step in (1, -1):
        other = (q.view(torch.uint8) + step).view(own)
        _, passed = fp8.judge(fp8.Magnitudes.of(x), other, scale, scale_tolerance=1e-3, tie=2.0**-14)
        off = (other.double() - quotient).abs() - (q.double() - quotient).abs()
        same = other.double() == q.double()  # zeros of both signs
        assert (passed == ((off.abs() < 2.0**-13 * quotient.abs()) | same)).all()
        assert passed.double().mean() < 0.1


def test_scales_hold_to_a_thousandth_and_codes_to_the_scale_that_was_stored(own: torch.dtype) -> None:
    x, _, scale = quantised(64, own)
    for factor, passes in ((1.0, True), (1.0009, True), (0.9991, True), (1.0011, False), (0.9989, False)):
        other = scale * factor
        top = fp8.largest(own)
        q = (x.float() / other.unsqueeze(-1)).clamp(-top, top).to(own)
        assert right(x, q, other) == passes
    assert not right(x, quantised(64, own)[1], scale * 1.0009)


def test_what_a_checker_lets_pass_is_off_by_half_a_step_and_the_scale_s_error_at_most(own: torch.dtype) -> None:
    x, q, scale = quantised(64, own)
    other = scale * 0.9991
    top = fp8.largest(own)
    q = (x.float() / other.unsqueeze(-1)).clamp(-top, top).to(own)
    step = torch.maximum(x.abs() * 2.0**-3, other.double().unsqueeze(-1) * fp8.largest(own) * 2.0**-17)
    error = (q.double() * other.double().unsqueeze(-1) - x).abs()
    assert (error <= step * (0.5 + 2.0**-9) + x.abs() * 1e-3).all()


def test_zeros_have_zero_codes_and_a_small_scale_or_none(own: torch.dtype) -> None:
    x = torch.zeros(1, 1, 8, dtype=torch.float64)
    q, top = torch.zeros(1, 1, 8).to(own), fp8.largest(own)
    for scale, passes in ((0.0, True), (1 / (512 * top), True), (1.0, False), (-1e-9, False), (float("nan"), False)):
        assert right(x, q, torch.tensor([[scale]])) == passes
    q[0, 0, 3] = 1.0
    assert not right(x, q, torch.zeros(1, 1))


def test_nan_codes_and_scales_are_wrong(own: torch.dtype) -> None:
    x, q, scale = quantised(2, own)
    for value in (float("nan"), float("inf"), -1.0, 0.0):
        other = scale.clone()
        other[1] = value
        assert not right(x, q, other)
    q.view(torch.uint8)[1, 0, 5] = 0x80 if own == fp8.FNUZ else 0x7F
    assert not right(x, q, scale)
