"""FLOPs and compulsory bytes of `gated_rms_norm`. Formulas: arXiv 2607.14541 and its data set."""

from __future__ import annotations

from typing import Any

from roofmark.records import Work


def work(*, rows: int, hidden_size: int, **_: Any) -> Work:
    """Eight operations for each element and one for each row; read x, z and the weight, write y, two bytes each."""
    values = rows * hidden_size
    return Work(
        flops={"bf16": 8 * values + rows},
        bytes_read=4 * values + 2 * hidden_size,
        bytes_written=2 * values,
    )


work_published = work
