"""FLOPs and compulsory bytes of `fused_add_rms_norm`. Formulas: arXiv 2607.14541 and its data set."""

from __future__ import annotations

from roofmark.records import Work


def work(*, token_count: int, hidden_size: int, eps: float) -> Work:
    """Add, square, scale and weigh each element; read both terms and the weight, write both outputs, two bytes each."""
    values = token_count * hidden_size
    return Work(
        flops={"bf16": 4 * values + token_count},
        bytes_read=4 * values + 2 * hidden_size,
        bytes_written=4 * values,
    )


work_published = work
