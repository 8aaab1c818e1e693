"""FLOPs and compulsory bytes of `fused_qkv_rope`. Formulas: arXiv 2607.14541 and its data set."""

from __future__ import annotations

from roofmark.records import Work


def work(*, total_tokens: int, num_heads: int, num_kv_heads: int, head_dim: int, rope_dim: int, dtype: str) -> Work:
    """Three operations for each query and key element, frequencies and angles; all heads read and written once."""
    moved = 2 * total_tokens * (num_heads + 2 * num_kv_heads) * head_dim
    turn = 3 * total_tokens * (num_heads + num_kv_heads) * head_dim
    return Work(
        flops={dtype: turn + rope_dim + total_tokens * rope_dim // 2},
        bytes_read=moved + 4 * total_tokens,
        bytes_written=moved,
    )


def work_published(**sizes: object) -> Work:
    """As published: fp16 named for bf16 too."""
    return work(**{**sizes, "dtype": "fp16"})  # type: ignore[arg-type]
