"""FLOPs and compulsory bytes of `chunk_delta_rule_output`. Formulas: arXiv 2607.14541 and its data set."""

from __future__ import annotations

from roofmark.records import Work


def work(*, token_count: int, chunk_size: int, **sizes: int) -> Work:
    """Two products of each token with its state and with the tokens of its chunk up to itself; all read once."""
    full, tail = divmod(token_count, chunk_size)
    pairs = (full * chunk_size * (chunk_size + 1) + tail * (tail + 1)) // 2
    return _work(token_count, chunk_size, rows=token_count, pairs=pairs, **sizes)


def work_published(*, token_count: int, chunk_size: int, **sizes: int) -> Work:
    """As published: whole chunks, and every token with all tokens of its chunk, those after it too."""
    chunks = -(-token_count // chunk_size)
    return _work(token_count, chunk_size, rows=chunks * chunk_size, pairs=chunks * chunk_size**2, **sizes)


def _work(
    tokens: int,
    chunk_size: int,
    *,
    rows: int,
    pairs: int,
    batch_size: int,
    num_q_heads: int,
    num_v_heads: int,
    key_dim: int,
    value_dim: int,
) -> Work:
    per_row, per_pair = 2 * key_dim * value_dim + 3 * value_dim, 2 * key_dim + 2 * value_dim + 2
    chunks = -(-tokens // chunk_size)
    queries_and_keys = 2 * 2 * tokens * num_q_heads * key_dim
    values = 2 * tokens * num_v_heads * value_dim
    states = 2 * chunks * num_v_heads * key_dim * value_dim
    return Work(
        flops={"bf16": batch_size * num_v_heads * (rows * per_row + pairs * per_pair)},
        bytes_read=batch_size * (queries_and_keys + values + states + 4 * tokens * num_v_heads),
        bytes_written=batch_size * values,
    )
