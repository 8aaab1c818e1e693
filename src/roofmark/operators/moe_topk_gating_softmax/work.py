"""FLOPs and compulsory bytes of `moe_topk_gating_softmax`. Formulas: arXiv 2607.14541 and its data set."""

from __future__ import annotations

from roofmark.records import Work


def work(*, token_count: int, num_experts: int, top_k: int) -> Work:
    """Subtract, exponentiate, add, divide; float32 read, a float32 and an int32 written per chosen expert."""
    return Work(
        flops={"fp32": token_count * (4 * num_experts - 1)},
        bytes_read=4 * token_count * num_experts,
        bytes_written=8 * token_count * top_k,
    )


work_published = work
