"""FLOPs and compulsory bytes of `per_token_group_quant_fp8`. Formulas: arXiv 2607.14541 and its data set."""

from __future__ import annotations

from roofmark.records import Work


def work(*, token_count: int, hidden_size: int, group_size: int) -> Work:
    """A product for each element and a scale for each group; bfloat16 read, a byte and float32 scales written."""
    values = token_count * hidden_size
    groups = values // group_size
    return Work(flops={"fp8_e4m3": values + groups}, bytes_read=2 * values, bytes_written=values + 4 * groups)


work_published = work
