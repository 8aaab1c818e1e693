"""FLOPs and compulsory bytes of `reshape_and_cache`. Formulas: arXiv 2607.14541 and its data set."""

from __future__ import annotations

from collections.abc import Sequence

from roofmark.records import Work


def work(*, shape: Sequence[int], block_size: int, num_blocks: int | None = None) -> Work:
    """Every row of keys and values read and written once, every slot number read; other slots stay as they are."""
    tokens, heads, head_size = shape
    rows = 2 * 2 * tokens * heads * head_size
    return Work(flops={"bf16": 0}, bytes_read=rows + 8 * tokens, bytes_written=rows)


def work_published(*, shape: Sequence[int], block_size: int) -> Work:
    """As published: both caches, just large enough for the tokens, are read and written too."""
    tokens, heads, head_size = shape
    rows = 2 * 2 * tokens * heads * head_size
    caches = 2 * 2 * -(-tokens // block_size) * block_size * heads * head_size
    return Work(flops={"bf16": 0}, bytes_read=rows + caches + 8 * tokens, bytes_written=caches)
