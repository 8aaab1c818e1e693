"""Works of the mixtures of experts differ from the published ones only as docs/errata.md says."""

from __future__ import annotations

from roofmark import operators
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
