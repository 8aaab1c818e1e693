"""States of the gated delta rule by a scan: a chunk maps states to A S + B, and pairs of such maps are doubled."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

# Elements of the maps that are held at a time, in whole heads.
ELEMENTS = 1 << 26


def second(inputs: Mapping[str, Tensor], sizes: Mapping[str, Any]) -> tuple[Tensor, ...]:
    """The states before chunks, the new values, and the pool, its owned rows written in place."""
    k, w, u, pool = (inputs[name] for name in ("k", "w", "u", "initial_state"))
    owned, chunk = inputs["initial_state_indices"].long(), int(sizes["chunk_size"])
    batch, tokens, heads, value_dim = u.shape
    key_dim, chunks = k.shape[-1], -(-tokens // chunk)
    h = u.new_empty(batch, chunks, heads, key_dim, value_dim)
    v_new = torch.empty_like(u)
    step = max(1, ELEMENTS // (batch * chunks * key_dim * (key_dim + value_dim)))
    for first in range(0, heads, step):
        some = torch.arange(first, min(first + step, heads), device=u.device)
        keys, reads = _cut(k[:, :, some // (heads // k.shape[2])], chunk), _cut(w[:, :, some], chunk)
        values, sums = _cut(u[:, :, some], chunk), _cut(inputs["g"][:, :, some].unsqueeze(-1), chunk, last=1.0)
        states = _states(keys, reads, values, sums, pool[owned[:, None], some])
        h[:, :, some] = states[:, :-1].to(h.dtype)
        new = (values - reads @ states[:, :-1]).transpose(2, 3).flatten(1, 2)
        v_new[:, :, some] = new[:, :tokens].to(v_new.dtype)
        pool[owned[:, None], some] = states[:, -1]
    return h, v_new, pool


def _cut(rows: Tensor, chunk: int, last: float = 0.0) -> Tensor:
    """`rows` [batch, token, head, d] as [batch, chunk, head, token, d] float32, filled up with `last` of the last."""
    missing = -rows.shape[1] % chunk
    full = torch.cat([rows.float(), rows[:, -1:].float().mul(last).expand(-1, missing, -1, -1)], 1)
    return full.view(len(rows), -1, chunk, *rows.shape[2:]).transpose(2, 3)


def _states(k: Tensor, w: Tensor, u: Tensor, g: Tensor, initial: Tensor) -> Tensor:
    """The states [batch, chunk + 1, head, dk, dv] before each chunk and after the last."""
    last = g[..., -1:, :]
    faded = (k * (last - g).exp_()).mT
    # after a chunk: exp(last) S + faded (u - w S)
    a = (faded @ w).neg_()
    a.diagonal(dim1=-2, dim2=-1).add_(last.squeeze(-1).exp())
    b = faded @ u
    b[:, 0] += a[:, 0] @ initial
    # chunk n's map begins at chunk n, then at n - 1, n - 3, ... and in the end at the initial state
    reach = 1
    while reach < a.shape[1]:
        b = torch.cat([b[:, :reach], b[:, reach:] + a[:, reach:] @ b[:, :-reach]], 1)
        a = torch.cat([a[:, :reach], a[:, reach:] @ a[:, :-reach]], 1)
        reach *= 2
    return torch.cat([initial.unsqueeze(1), b], 1)
