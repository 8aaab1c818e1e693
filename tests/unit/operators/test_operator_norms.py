"""What no published shape of the norms and sums can show."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from operator_check import SEED
from torch import nn

from roofmark import operators
from roofmark.evaluate.correctness import check_outputs
from roofmark.operators import Operator


def _model(operator: Operator) -> Callable[..., nn.Module]:
    """The reference `Model` from its source."""
    namespace: dict[str, Any] = {"__name__": "reference"}
    exec(operator.reference_text(), namespace)
    made: Callable[..., nn.Module] = namespace["Model"]
    return made


def test_moe_sum_reduce_heeds_a_factor_that_no_published_shape_has() -> None:
    operator = operators.load("moe_sum_reduce")
    assert {shape.init["routed_scaling_factor"] for shape in operator.shapes} == {1.0}
    sizes = {"token_count": 33, "top_k": 8, "hidden_size": 2048, "routed_scaling_factor": 2.5}
    model = _model(operator)
    inputs = operator.make_inputs(sizes, seed=SEED, device="cpu")
    for factor, right in ((2.5, True), (1.0, False), (2.45, False)):
        outputs = {"y": model(routed_scaling_factor=factor)(**inputs)}
        assert (check_outputs(operator, inputs, sizes, outputs, None).finding is None) == right


@pytest.mark.parametrize("init", [{"norm_before_gate": False}, {"activation": "sigmoid"}])
def test_gated_rms_norm_refuses_what_has_no_shape(init: dict[str, object]) -> None:
    operator = operators.load("gated_rms_norm")
    model = _model(operator)
    with pytest.raises(ValueError, match="only a norm before"):
        model(**{**operator.shapes[0].init, **init})


@pytest.mark.parametrize("seed", range(20))
def test_a_row_of_topk_filter_has_its_largest_in_both_halves_and_near_its_ends(seed: int) -> None:
    operator = operators.load("topk_filter")
    sizes = operator.shapes[0].sizes
    logits = operator.make_inputs(sizes, seed=seed, device="cpu")["logits"]
    top = logits.topk(52, dim=-1)
    assert top.values.diff(dim=-1).max() < 0  # no ties near the edge
    assert len(top.values[0, 2:].bfloat16().unique()) <= 3
    places = top.indices[0, :50].sort().values
    assert places[0] < 16
    assert places[-1] >= logits.shape[1] - 16
    assert 15 < (places < logits.shape[1] // 2).sum() < 35
