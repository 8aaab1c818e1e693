"""FLOPs and compulsory bytes of `rms_norm`. Formulas: arXiv 2607.14541 and its data set."""

from __future__ import annotations

from roofmark.records import Work


def work(*, token_count: int, hidden_size: int, eps: float) -> Work:
    """Square, add, scale and weigh each element once; read x and the weight, write y, two bytes each."""
    values = token_count * hidden_size
    return Work(
        flops={"bf16": 3 * values + token_count},
        bytes_read=2 * values + 2 * hidden_size,
        bytes_written=2 * values,
    )


work_published = work
