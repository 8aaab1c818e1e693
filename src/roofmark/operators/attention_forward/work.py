"""FLOPs and compulsory bytes of `attention_forward`. Formulas: arXiv 2607.14541 and its data set."""

from __future__ import annotations

from collections.abc import Sequence

from roofmark.records import Work


def work(*, num_heads: int, head_dim: int, seq_lens: Sequence[int]) -> Work:
    """Two matrix products per head over whole sequences; q, k, v and the bounds read, out written."""
    return _work(num_heads, head_dim, seq_lens, bytes_per_bound=4)


def work_published(*, num_heads: int, head_dim: int, seq_lens: Sequence[int]) -> Work:
    """As published: eight bytes for each bound of a sequence, where one int32 array holds them."""
    return _work(num_heads, head_dim, seq_lens, bytes_per_bound=8)


def _work(num_heads: int, head_dim: int, seq_lens: Sequence[int], *, bytes_per_bound: int) -> Work:
    width = num_heads * head_dim
    rows = sum(seq_lens)
    return Work(
        flops={"bf16": 4 * sum(length**2 for length in seq_lens) * width},
        bytes_read=6 * rows * width + bytes_per_bound * (len(seq_lens) + 1),
        bytes_written=2 * rows * width,
    )
