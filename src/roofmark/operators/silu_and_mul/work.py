"""FLOPs and compulsory bytes of `silu_and_mul`. Formulas: arXiv 2607.14541 and its data set."""

from __future__ import annotations

from collections.abc import Sequence

from roofmark.records import Work


def work(*, shape: Sequence[int]) -> Work:
    """Five operations for each pair of a gate and a factor; read both, write one, two bytes each."""
    values = shape[0] * shape[1]
    return Work(flops={"bf16": 5 * values // 2}, bytes_read=2 * values, bytes_written=values)


work_published = work
