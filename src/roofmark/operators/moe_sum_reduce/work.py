"""FLOPs and compulsory bytes of `moe_sum_reduce`. Formulas: arXiv 2607.14541 and its data set."""

from __future__ import annotations

from roofmark.records import Work


def work(*, token_count: int, top_k: int, hidden_size: int, routed_scaling_factor: float) -> Work:
    """k - 1 sums and a product for each output; read x and write y, two bytes each."""
    values = token_count * hidden_size
    return Work(flops={"bf16": top_k * values}, bytes_read=2 * top_k * values, bytes_written=2 * values)


work_published = work
