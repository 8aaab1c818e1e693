"""FLOPs and compulsory bytes of `l2_norm`. Formulas: arXiv 2607.14541 and its data set."""

from __future__ import annotations

from roofmark.records import Work


def work(*, num_tokens: int, hidden_size: int) -> Work:
    """Square, add and scale each element once; read x and write y, two bytes each."""
    values = num_tokens * hidden_size
    return Work(flops={"bf16": 3 * values}, bytes_read=2 * values, bytes_written=2 * values)


work_published = work
