"""FLOPs and compulsory bytes of `fused_rmsnorm_quant`. Formulas: arXiv 2607.14541 and its data set."""

from __future__ import annotations

from roofmark.records import Work


def work(*, token_count: int, hidden_size: int) -> Work:
    """Five operations for each element and two for each row.

    Two bfloat16 and the weight read; a byte, a bfloat16 and a float32 scale for each row written.
    """
    values = token_count * hidden_size
    return Work(
        flops={"fp8_e4m3": 5 * values + 2 * token_count},
        bytes_read=4 * values + 2 * hidden_size,
        bytes_written=3 * values + 4 * token_count,
    )


work_published = work
