"""FLOPs and compulsory bytes of `moe_count_and_sort`. Formulas: arXiv 2607.14541 and its data set."""

from __future__ import annotations

from roofmark.records import Work


def work(*, token_count: int, top_k: int, num_experts: int, block_size: int = 128) -> Work:
    """Every expert number read, every slot, count and sum written, four bytes each; no arithmetic that counts."""
    slots = token_count * top_k
    return Work(flops={}, bytes_read=4 * slots, bytes_written=4 * (slots + num_experts + num_experts + 1))


work_published = work
