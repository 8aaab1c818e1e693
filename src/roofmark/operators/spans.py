"""Lengths of sequences as sizes write them. No torch here: works need them too."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

# What sizes hold under `seq_lens`: every length, or runs of equal sequences.
Lengths = Sequence[int] | Mapping[str, Any]
# What they hold under `ctx_len`: one length for all sequences, or as above.
Contexts = int | Lengths


def spans(seq_lens: Lengths) -> list[tuple[int, int]]:
    """(query tokens, tokens) of every sequence; the query tokens are its last.

    A list holds the tokens of sequences that are all query. `{"run_length": [...]}` holds runs: `[tokens, count]`
    of such sequences, or `[query tokens, tokens, count]`.
    """
    if not isinstance(seq_lens, Mapping):
        return [(length, length) for length in seq_lens]
    made: list[tuple[int, int]] = []
    for *lengths, count in seq_lens["run_length"]:
        made += [(lengths[0], lengths[-1])] * count
    return made


def contexts(count: int, ctx_len: Contexts) -> list[int]:
    """The tokens of each of `count` sequences; `ValueError` where `ctx_len` lists another number of them."""
    if isinstance(ctx_len, int):
        return [ctx_len] * count
    made = [tokens for _, tokens in spans(ctx_len)]
    if len(made) != count:
        raise ValueError(f"ctx_len holds {len(made)} lengths of {count} sequences")
    return made
