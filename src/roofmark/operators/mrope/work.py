"""FLOPs and compulsory bytes of `mrope`. Formulas: arXiv 2607.14541 and its data set."""

from __future__ import annotations

from typing import Any

from roofmark.records import Work


def work(**sizes: Any) -> Work:
    """Three operations an element; queries and keys read and written, one cosine and sine for each frequency."""
    return _work(positions=1, **sizes)


def work_published(**sizes: Any) -> Work:
    """As published: the cosines and sines of all three positions are read."""
    return _work(positions=3, **sizes)


def _work(
    *,
    positions: int,
    token_count: int,
    num_query_heads: int,
    num_kv_heads: int,
    head_size: int,
    rotary_dim: int,
    **_: Any,
) -> Work:
    values = token_count * (num_query_heads + num_kv_heads) * head_size
    return Work(
        flops={"bf16": 3 * values},
        bytes_read=2 * values + positions * token_count * 2 * 4 * rotary_dim // 2,
        bytes_written=2 * values,
    )
