"""What the convolution and the delta rules do where no published shape shows it, and how their works differ."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import pytest
from operator_check import SEED, cost, small_sizes
from torch import Tensor

from roofmark import operators
from roofmark.evaluate.correctness import check_outputs
from roofmark.operators import Operator, Sizes

STRAIGHT = {"activation": None}
OTHERWISE: dict[str, Any] = {"softplus_beta": 2.0, "softplus_threshold": 0.25, "use_qk_l2norm": False}


def _works(name: str, sizes: Sizes) -> tuple[float, int, int]:
    """FLOPs, bytes read and bytes written: ours less the published."""
    operator = operators.load(name)
    ours, published = operator.work(sizes), operator.work_published(sizes)
    flops = sum(ours.flops.values()) - sum(published.flops.values())
    return flops, ours.bytes_read - published.bytes_read, ours.bytes_written - published.bytes_written


def _tokens_to_come(s: Sizes) -> tuple[float, int, int]:
    """Pairs of a token and one after it in its chunk, and all that a short chunk lacks."""
    heads, size, products = s["num_v_heads"], s["chunk_size"], 2 * (s["key_dim"] + s["value_dim"] + 1)
    full, tail = divmod(s["token_count"], size)
    pairs = full * size * (size - 1) // 2
    if not tail:
        return -heads * pairs * products, 0, 0
    pairs += size * size - tail * (tail + 1) // 2
    rows = (size - tail) * (2 * s["key_dim"] + 3) * s["value_dim"]
    return -heads * (pairs * products + rows), 0, 0


def _unowned_states(s: Sizes) -> tuple[float, int, int]:
    states = 4 * (s["state_count"] - s["batch_size"]) * s["num_v_heads"] * s["key_dim"] * s["value_dim"]
    return 0, -states, -states


DIFFERENCES: dict[str, Callable[[Sizes], tuple[float, int, int]]] = {
    "causal_conv1d": lambda s: (0, 0, 2 * s["dim"] * (s["width"] - 1)),
    "chunk_delta_rule_output": _tokens_to_come,
    "chunk_gated_delta_rule_state": lambda s: (0, 0, 0),
    "gated_delta_rule_update": _unowned_states,
}


@pytest.mark.parametrize("name", DIFFERENCES)
def test_works_differ_as_the_errata_say(name: str) -> None:
    for shape in operators.load(name).shapes:
        assert _works(name, shape.sizes) == DIFFERENCES[name](shape.sizes)


@pytest.mark.parametrize("name", DIFFERENCES)
def test_stand_ins_have_the_most_tokens_that_run_in_a_tenth_of_a_second(name: str) -> None:
    operator = operators.load(name)
    for shape in operator.shapes:
        stand_in, sizes = shape.stand_in or {}, small_sizes(shape)
        assert set(stand_in) <= {"token_count", "state_count"}
        assert stand_in.get("state_count", 5) == 5  # hundreds of states are memory that nothing touches
        assert cost(operator, sizes) <= 0.1
        if "token_count" in stand_in:
            assert 257 <= sizes["token_count"] < shape.sizes["token_count"]
            assert sizes["token_count"] % 2 == 1
            assert cost(operator, {**sizes, "token_count": sizes["token_count"] + 2}) > 0.1


def _passes(operator: Operator, inputs: Mapping[str, Tensor], sizes: Sizes, init: Mapping[str, Any]) -> bool:
    """Whether the reference made with `init` is right on inputs under `sizes`."""
    namespace: dict[str, Any] = {"__name__": "reference"}
    exec(operator.reference_text(), namespace)
    made = namespace["Model"](**init)(*(value.clone() for value in inputs.values()))
    return (
        check_outputs(operator, inputs, sizes, dict(zip(operator.spec.outputs, made, strict=True)), None).finding
        is None
    )


def test_a_convolution_may_have_no_activation() -> None:
    operator = operators.load("causal_conv1d")
    shape = operator.shapes[0]
    sizes = {**operator.corners(shape.sizes)["three_tokens"], **STRAIGHT}
    inputs = operator.make_inputs(sizes, seed=SEED, device="cpu")
    assert _passes(operator, inputs, sizes, STRAIGHT)
    assert not _passes(operator, inputs, sizes, shape.init)


@pytest.mark.parametrize("changed", OTHERWISE)
def test_the_delta_rule_heeds_what_every_shape_has_alike(changed: str) -> None:
    operator = operators.load("gated_delta_rule_update")
    shape = operator.shape("8")
    sizes = {**operator.corners(shape.sizes)["batch"], **OTHERWISE}
    inputs = operator.make_corner("batch", sizes, seed=SEED, device="cpu")
    for key in ("q", "k"):  # of about norm one, where the rule leaves them as they are
        inputs[key] /= 1.1 * inputs[key].norm(dim=-1, keepdim=True).clamp_min(1e-3)
    inputs["A_log"] += 1.5
    assert _passes(operator, inputs, sizes, OTHERWISE)
    assert not _passes(operator, inputs, sizes, {**OTHERWISE, changed: shape.init[changed]})
