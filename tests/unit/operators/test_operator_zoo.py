"""The wrong answers that any operator can meet, made for outputs of every kind."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from roofmark.operators.zoo import generic, mixed, significant

FP8 = torch.float8_e4m3fn


def spoilt(**right: Tensor) -> dict[str, dict[str, Tensor]]:
    return dict(generic(right, {}))


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32, FP8, torch.int32, torch.int64])
def test_they_differ_and_keep_shape_and_type(dtype: torch.dtype) -> None:
    value = (torch.arange(1, 121).view(5, 24) % 37 + 3).float().to(dtype)
    made = spoilt(out=value)
    assert len(made) == (12 if dtype.is_floating_point else 11)
    for title, outputs in made.items():
        assert outputs["out"].dtype == dtype
        assert outputs["out"].shape == value.shape
        assert not torch.equal(outputs["out"].double(), value.double()), title
    assert torch.equal(value.double(), ((torch.arange(1, 121).view(5, 24) % 37 + 3).float().to(dtype)).double())


def test_one_output_is_spoilt_at_a_time() -> None:
    right = {"values": torch.rand(4, 8), "ids": torch.arange(4)}
    for title, outputs in generic(right, {}):
        name = title.split(": ")[0]
        other = next(key for key in right if key != name)
        assert outputs[other] is right[other]
        assert outputs[name] is not right[name]


def test_one_row_has_no_row_to_be_shifted_to() -> None:
    made = spoilt(out=torch.rand(1, 8))
    same = {title for title, outputs in made.items() if torch.equal(outputs["out"], made["rows shifted"]["out"])}
    assert same == {"rows shifted", "mean of the rows"}


@pytest.mark.parametrize("dtype", [torch.float32, FP8, torch.int32])
def test_one_element_has_bytes_to_compare(dtype: torch.dtype) -> None:
    for outputs in spoilt(out=torch.tensor([3.0]).to(dtype)).values():
        assert outputs["out"].view(torch.uint8).numel() == dtype.itemsize


def test_means_look_past_infinities() -> None:
    value = torch.tensor([[1.0, -torch.inf], [3.0, -torch.inf]])
    assert spoilt(out=value)["mean of all"]["out"].tolist() == [[2.0, 2.0], [2.0, 2.0]]
    assert spoilt(out=torch.full((2, 2), -torch.inf))["mean of all"]["out"].tolist() == [[0.0, 0.0], [0.0, 0.0]]


def test_inputs_are_handed_back_where_they_fit() -> None:
    right = {"out": torch.zeros(4, 8, dtype=torch.bfloat16)}
    inputs = {"x": torch.rand(4, 16), "weight": torch.rand(8), "ids": torch.arange(8), "few": torch.rand(4, 2)}
    made = dict(generic(right, inputs))
    assert {title for title in made if title.startswith("input")} == {"input x", "input weight"}
    assert torch.equal(made["input x"]["out"], inputs["x"][:, :8].bfloat16())
    assert torch.equal(made["input weight"]["out"][3], inputs["weight"].bfloat16())


def test_another_answer_takes_the_place_of_all_outputs_or_of_one() -> None:
    right, other = ({"a": torch.full((2,), n), "b": torch.full((3,), n)} for n in (1, 2))
    made = dict(mixed(right, other, "old"))
    assert {title: [int(t[0]) for t in outputs.values()] for title, outputs in made.items()} == {
        "old": [2, 2],
        "a: old": [2, 1],
        "b: old": [1, 2],
    }


@pytest.mark.parametrize(("dtype", "bits"), [(torch.bfloat16, 8), (torch.float16, 11), (torch.float32, 24)])
def test_significant_bits_are_those_of_the_type(dtype: torch.dtype, bits: int) -> None:
    x = torch.randn(4096).to(dtype)
    assert torch.equal(significant(x, bits), x)
    error = ((significant(x, bits - 3).double() - x.double()) / x.double()).abs().max()
    assert 2.0 ** -(bits - 2) < error <= 2.0 ** -(bits - 3)
