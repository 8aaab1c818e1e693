"""FLOPs and compulsory bytes of `paged_attention_decode`. Formulas: arXiv 2607.14541 and its data set."""

from __future__ import annotations

from roofmark.operators.spans import Contexts, contexts
from roofmark.records import Work

PUBLISHED_SPARE_BLOCKS = 16


def work(
    *,
    num_seqs: int,
    ctx_len: Contexts,
    num_query_heads: int,
    num_kv_heads: int,
    head_size: int,
    block_size: int,
    dtype: str,
) -> Work:
    """Two products per query head; keys, values, queries, table and lengths read once."""
    lengths = contexts(num_seqs, ctx_len)
    tokens = sum(lengths)
    blocks = sum(-(-length // block_size) for length in lengths)
    query = 2 * num_seqs * num_query_heads * head_size
    cache = 2 * 2 * tokens * num_kv_heads * head_size
    return Work(
        flops={dtype: _flops(tokens, num_query_heads, head_size)},
        bytes_read=query + cache + 4 * blocks + 4 * num_seqs,
        bytes_written=query,
    )


def work_published(
    *,
    num_seqs: int,
    ctx_len: int,
    num_query_heads: int,
    num_kv_heads: int,
    head_size: int,
    block_size: int,
    dtype: str,
) -> Work:
    """As published: whole blocks and 16 that no sequence owns, and bf16 named for fp16 too."""
    blocks = -(-ctx_len // block_size)
    query = 2 * num_seqs * num_query_heads * head_size
    cache = 2 * 2 * (num_seqs * blocks + PUBLISHED_SPARE_BLOCKS) * block_size * num_kv_heads * head_size
    return Work(
        flops={"bf16": _flops(num_seqs * ctx_len, num_query_heads, head_size)},
        bytes_read=query + cache + 4 * num_seqs * blocks + 4 * num_seqs,
        bytes_written=query,
    )


def _flops(tokens: int, num_query_heads: int, head_size: int) -> int:
    return 4 * tokens * num_query_heads * head_size + 2 * tokens
