"""FLOPs and compulsory bytes of `gated_delta_rule_update`. Formulas: arXiv 2607.14541 and its data set."""

from __future__ import annotations

from typing import Any

from roofmark.records import Work


def work(*, batch_size: int, **sizes: Any) -> Work:
    """Seven operations per token and element of a state; inputs and owned states read once; out and those written."""
    return _work(batch_size=batch_size, states=batch_size, **sizes)


def work_published(*, state_count: int, **sizes: Any) -> Work:
    """As published: every state of the pool is read and written."""
    return _work(states=state_count, **sizes)


def _work(
    *,
    batch_size: int,
    token_count: int,
    num_q_heads: int,
    num_v_heads: int,
    key_dim: int,
    value_dim: int,
    states: int,
    **_: Any,
) -> Work:
    tokens = batch_size * token_count
    pool = 4 * states * num_v_heads * key_dim * value_dim
    values = 2 * tokens * num_v_heads * value_dim
    queries_and_keys = 2 * 2 * tokens * num_q_heads * key_dim
    gates = 2 * 2 * tokens * num_v_heads + (4 + 2) * num_v_heads
    return Work(
        flops={"bf16": tokens * num_v_heads * (7 * key_dim * value_dim + 3 * key_dim + 2)},
        bytes_read=queries_and_keys + values + gates + pool + 4 * batch_size,
        bytes_written=values + pool,
    )
