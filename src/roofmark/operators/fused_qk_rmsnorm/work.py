"""FLOPs and compulsory bytes of `fused_qk_rmsnorm`. Formulas: arXiv 2607.14541 and its data set."""

from __future__ import annotations

from roofmark.records import Work


def work(*, num_tokens: int, head_num: int, kv_head_num: int, size_per_head: int, dtype: str) -> Work:
    """Square, add, scale and weigh; query and key heads read and written in place, both weights read."""
    return _work(num_tokens, head_num + kv_head_num, 0, size_per_head, dtype)


def work_published(*, num_tokens: int, head_num: int, kv_head_num: int, size_per_head: int, dtype: str) -> Work:
    """As published: the value heads are read and written too."""
    return _work(num_tokens, head_num + kv_head_num, kv_head_num, size_per_head, dtype)


def _work(num_tokens: int, normed: int, copied: int, size_per_head: int, dtype: str) -> Work:
    moved = 2 * num_tokens * (normed + copied) * size_per_head
    return Work(
        flops={dtype: num_tokens * normed * (3 * size_per_head + 1)},
        bytes_read=moved + 4 * size_per_head,
        bytes_written=moved,
    )
