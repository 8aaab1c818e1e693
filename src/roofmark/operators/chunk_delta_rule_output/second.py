"""Outputs of gated linear attention with the states inside chunks: 16 tokens at a time, each from its own state."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

# Tokens between two states, and elements of the states that are held at a time.
BLOCK, ELEMENTS = 16, 1 << 26


def second(inputs: Mapping[str, Tensor], sizes: Mapping[str, Any]) -> Tensor:
    """What each query reads of the state before its chunk and of the tokens of its chunk up to its own."""
    h, chunk = inputs["h"], int(sizes["chunk_size"])
    batch, chunks, heads, key_dim, value_dim = h.shape
    tokens = inputs["q"].shape[1]
    out = inputs["v"].new_empty(inputs["v"].shape)
    step = max(1, ELEMENTS // (batch * heads * key_dim * value_dim))
    for first in range(0, chunks, step):
        span = slice(first * chunk, min((first + step) * chunk, tokens))
        q, k, v = (_cut(inputs[name][:, span], chunk, heads) for name in ("q", "k", "v"))
        g = _cut(inputs["g"][:, span].unsqueeze(-1), chunk, heads)
        made = _chunks((q, k, v), g, h[:, first : first + step])
        made = made.transpose(2, 3).flatten(1, 2)[:, : span.stop - span.start]
        out[:, span] = made.mul_(key_dim**-0.5).to(out.dtype)
    return out


def _cut(rows: Tensor, chunk: int, heads: int) -> Tensor:
    """`rows` [batch, token, head, d] as [batch, chunk, value head, token, d] float32; a tail repeats its last token."""
    missing = -rows.shape[1] % chunk
    full = torch.cat([rows, rows[:, -1:].expand(-1, missing, -1, -1)], 1).float()
    wide = full.repeat_interleave(heads // rows.shape[2], 2)
    return wide.view(len(rows), -1, chunk, heads, rows.shape[3]).transpose(2, 3)


def _chunks(rows: tuple[Tensor, Tensor, Tensor], g: Tensor, before: Tensor) -> Tensor:
    """The outputs before their scale, [batch, chunk, head, token, dv], of chunks with these states before them.

    `rows` are the queries, keys and values.
    """
    made = []
    state, passed = before.float(), torch.zeros_like(g[..., :1, :])
    for start in range(0, g.shape[-2], BLOCK):
        part = slice(start, start + BLOCK)
        queries, keys, values, sums = (x[..., part, :] for x in (*rows, g))
        # from the state's token on, from token to token, and to the next state: no exponent is above 0
        later = torch.ones(sums.shape[-2], sums.shape[-2], dtype=torch.bool, device=g.device).triu_(1)
        between = (sums - sums.mT).masked_fill_(later, -torch.inf).exp_()
        weights = (queries @ keys.mT).mul_(between)
        made.append((queries @ state).mul_((sums - passed).exp_()).add_(weights @ values))
        last = sums[..., -1:, :]
        state = state * (last - passed).exp_() + (keys * (last - sums).exp_()).mT @ values
        passed = last
    return torch.cat(made, -2)
