"""FLOPs and compulsory bytes of `unified_attention`. Formulas: arXiv 2607.14541 and its data set."""

from __future__ import annotations

from roofmark.operators.spans import Lengths, spans
from roofmark.records import Work


def work(
    *,
    num_seqs: int,
    seq_lens: Lengths,
    num_query_heads: int,
    num_kv_heads: int,
    head_size: int,
    block_size: int,
) -> Work:
    """Two products per query head over the pairs of a row and a token that it sees; what tokens own, read once."""
    every = spans(seq_lens)
    pairs = sum(rows * tokens - rows * (rows - 1) // 2 for rows, tokens in every)
    query = 2 * sum(rows for rows, _ in every) * num_query_heads * head_size
    cache = 2 * 2 * sum(tokens for _, tokens in every) * num_kv_heads * head_size
    table = 4 * sum(-(-tokens // block_size) for _, tokens in every)
    return Work(
        flops={"bf16": 4 * pairs * num_query_heads * head_size},
        bytes_read=query + cache + table + 4 * (2 * num_seqs + 1),
        bytes_written=query,
    )


# Nothing differs.
work_published = work
