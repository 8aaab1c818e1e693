"""FLOPs and compulsory bytes of `chunk_gated_delta_rule_state`. Formulas: arXiv 2607.14541 and its data set."""

from __future__ import annotations

from roofmark.records import Work


def work(
    *,
    batch_size: int,
    token_count: int,
    num_k_heads: int,
    num_v_heads: int,
    key_dim: int,
    value_dim: int,
    chunk_size: int,
    state_count: int,
) -> Work:
    """Two products per token; inputs and the owned states read once; h, v_new and the owned states written."""
    chunks = -(-token_count // chunk_size)
    state = key_dim * value_dim
    values = 2 * token_count * num_v_heads * value_dim
    keys = 2 * token_count * (num_k_heads + num_v_heads) * key_dim
    flops = num_v_heads * (4 * token_count * state + 2 * token_count * value_dim + token_count + 2 * chunks * state)
    read = keys + values + 4 * token_count * num_v_heads + 4 * num_v_heads * state + 4
    written = 2 * chunks * num_v_heads * state + values + 4 * num_v_heads * state
    return Work(flops={"bf16": batch_size * flops}, bytes_read=batch_size * read, bytes_written=batch_size * written)


def work_published(**sizes: int) -> Work:
    """As published: the same."""
    return work(**sizes)
