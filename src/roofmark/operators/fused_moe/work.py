"""FLOPs and compulsory bytes of `fused_moe`. Formulas: arXiv 2607.14541 and its data set."""

from __future__ import annotations

from roofmark.errors import ProblemError
from roofmark.operators.experts import touched
from roofmark.records import Work

# Tokens, hidden and intermediate size to the pairs of a token and an expert that the published FLOPs count: those
# of one unseeded draw with repeats inside a token. They can't be derived, but each divides its FLOPs evenly.
PUBLISHED_PAIRS = {
    (135, 2048, 2048): 246,
    (277, 2048, 2048): 524,
    (668, 2048, 2048): 1264,
    (1023, 2048, 2048): 1924,
    (1979, 2048, 2048): 3724,
    (4195, 2048, 2048): 7871,
    (7689, 2048, 2048): 14389,
    (15809, 2048, 2048): 29596,
    (1, 2048, 768): 8,
    (2400, 2048, 768): 18651,
    (4195, 2048, 768): 32637,
    (8192, 2048, 768): 63793,
    (15809, 2048, 768): 123047,
    (25632, 2048, 768): 199534,
    (45936, 2048, 768): 357673,
    (520, 4096, 384): 4054,
    (1019, 4096, 384): 7947,
    (2044, 4096, 384): 15916,
    (3936, 4096, 384): 30658,
    (8192, 4096, 384): 63732,
    (4098, 4096, 4096): 7699,
    (8179, 4096, 4096): 15324,
    (15381, 4096, 4096): 28841,
}


def work(*, token_count: int, hidden_size: int, intermediate_size: int, num_experts: int, top_k: int) -> Work:
    """Three products, the gating, the weight and the sum for each pair of a token and an expert.

    Read are the tokens, the weights of all experts that they are expected to touch, weights and ids; written the
    sums in bfloat16.
    """
    pairs = token_count * top_k
    each = 6 * hidden_size * intermediate_size + 5 * intermediate_size + 2 * hidden_size
    return Work(
        flops={"bf16": pairs * each},
        bytes_read=_bytes_read(token_count, hidden_size, intermediate_size, num_experts, top_k),
        bytes_written=2 * token_count * hidden_size,
    )


def work_published(*, token_count: int, hidden_size: int, intermediate_size: int, num_experts: int, top_k: int) -> Work:
    """As published: the pairs of its draw, the search for the tokens of each expert, a float32 output."""
    pairs = PUBLISHED_PAIRS.get((token_count, hidden_size, intermediate_size))
    if pairs is None:
        raise ProblemError(f"fused_moe: no published work for {token_count} tokens of {hidden_size}")
    each = 6 * hidden_size * intermediate_size + 5 * intermediate_size + hidden_size
    search = touched(token_count, num_experts, top_k) * token_count * (2 * top_k - 1)
    return Work(
        flops={"bf16": pairs * each + search},
        bytes_read=_bytes_read(token_count, hidden_size, intermediate_size, num_experts, top_k),
        bytes_written=4 * token_count * hidden_size,
    )


def _bytes_read(tokens: int, hidden: int, intermediate: int, experts: int, top_k: int) -> int:
    return 2 * tokens * hidden + 6 * touched(tokens, experts, top_k) * hidden * intermediate + 8 * tokens * top_k
