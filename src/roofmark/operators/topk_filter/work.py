"""FLOPs and compulsory bytes of `topk_filter`. Formulas: arXiv 2607.14541 and its data set."""

from __future__ import annotations

from roofmark.records import Work


def work(*, seq_len: int, hidden_size: int, top_k: int = 50) -> Work:
    """Comparisons count nothing; float32 read once and written once."""
    values = seq_len * hidden_size
    return Work(flops={"fp32": 0}, bytes_read=4 * values, bytes_written=4 * values)


work_published = work
