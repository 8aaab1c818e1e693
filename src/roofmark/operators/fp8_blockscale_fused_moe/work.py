"""FLOPs and compulsory bytes of `fp8_blockscale_fused_moe`. Formulas: arXiv 2607.14541 and its data set."""

from __future__ import annotations

from roofmark.operators.experts import touched
from roofmark.records import Work

BLOCK = 128


def work(*, token_count: int, hidden_size: int, intermediate_size: int, num_experts: int, top_k: int) -> Work:
    """Three products, the gating, the weight and the sum for each pair of a token and an expert, and the scaling.

    Read are the tokens, the weights of all experts that they are expected to touch, all scales, weights and ids;
    written the sums in bfloat16.
    """
    return _work(token_count, hidden_size, intermediate_size, num_experts, top_k, bytes_per_output=2)


def work_published(*, token_count: int, hidden_size: int, intermediate_size: int, num_experts: int, top_k: int) -> Work:
    """As published: an fp8 output."""
    return _work(token_count, hidden_size, intermediate_size, num_experts, top_k, bytes_per_output=1)


def _work(tokens: int, hidden: int, inner: int, experts: int, top_k: int, *, bytes_per_output: int) -> Work:
    used, pairs = touched(tokens, experts, top_k), tokens * top_k
    weights = 3 * inner * hidden
    scales = 3 * (inner // BLOCK) * (hidden // BLOCK)
    return Work(
        flops={"fp8_e4m3": pairs * (2 * weights + 5 * inner + 2 * hidden) + used * weights},
        bytes_read=tokens * hidden + 4 * tokens * hidden // BLOCK + 8 * pairs + used * (weights + 4 * scales),
        bytes_written=bytes_per_output * tokens * hidden,
    )
