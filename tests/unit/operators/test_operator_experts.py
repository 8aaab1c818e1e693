"""Works of the mixtures of experts differ as docs/errata.md says; fp8 between the products is always right."""

from __future__ import annotations

from roofmark import operators
from roofmark.evaluate.correctness import check_outputs
from roofmark.operators import zoo
from roofmark.operators.experts import touched
from roofmark.records import Work


def test_fused_moe_counts_every_pair_no_search_and_a_bfloat16_output() -> None:
    operator = operators.load("fused_moe")
    for shape in operator.shapes:
        s, published = shape.sizes, operator.work_published(shape.sizes)
        tokens, hidden, inner, top_k = s["token_count"], s["hidden_size"], s["intermediate_size"], s["top_k"]
        each = 6 * hidden * inner + 5 * inner + hidden
        search = touched(tokens, s["num_experts"], top_k) * tokens * (2 * top_k - 1)
        pairs, rest = divmod(published.flops["bf16"] - search, each)
        assert rest == 0
        assert 0.9 * tokens * top_k < pairs <= tokens * top_k
        assert operator.work(s) == Work(
            flops={"bf16": tokens * top_k * (each + hidden)},
            bytes_read=published.bytes_read,
            bytes_written=published.bytes_written - 2 * tokens * hidden,
        )


def test_fp8_blockscale_fused_moe_writes_bfloat16() -> None:
    operator = operators.load("fp8_blockscale_fused_moe")
    for shape in operator.shapes:
        ours, published = operator.work(shape.sizes), operator.work_published(shape.sizes)
        assert (ours.flops, ours.bytes_read) == (published.flops, published.bytes_read)
        assert ours.bytes_written - published.bytes_written == shape.sizes["token_count"] * shape.sizes["hidden_size"]


def test_fp8_between_the_products_passes_where_one_term_is_most_of_a_sum() -> None:
    # few inner values and one expert: one term may be as large as all others together
    operator = operators.load("fp8_blockscale_fused_moe")
    sizes = {"token_count": 256, "hidden_size": 256, "intermediate_size": 256, "num_experts": 16, "top_k": 8}
    right = zoo.load(operator).right["inner values in fp8"]
    for seed in range(3):
        inputs = operator.make_corner("one_weight", sizes, seed=seed, device="cpu")
        out = right(inputs, sizes)
        assert not isinstance(out, tuple)
        assert out is not None
        check = check_outputs(operator, inputs, sizes, {"out": out}, None)
        assert check.finding is None
        assert check.error_ratio > 0.5
