"""FLOPs and compulsory bytes of `fp8_dynamic_per_token_quant`. Formulas: arXiv 2607.14541 and its data set."""

from __future__ import annotations

from roofmark.records import Work


def work(*, token_count: int, hidden_size: int) -> Work:
    """A product for each element and a scale for each row; bfloat16 read, a byte and a float32 scale written."""
    values = token_count * hidden_size
    return Work(
        flops={"fp8_e4m3": values + token_count},
        bytes_read=2 * values,
        bytes_written=values + 4 * token_count,
    )


work_published = work
