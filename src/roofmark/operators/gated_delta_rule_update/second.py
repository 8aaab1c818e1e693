"""The gated delta rule 32 tokens at a time: a triangular system gives what a block of them writes at once."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import torch
from torch import Tensor

# Tokens that are solved for together, and those whose systems are solved in one call.
BLOCK, SPAN = 32, 4096


class Blocks(NamedTuple):
    """Blocks of tokens of all heads, [batch, block, head, token, ...] float32."""

    queries: Tensor  # normalised, scaled and decayed from the block's begin on
    inner: Tensor  # what each token's query reads of what each token writes
    writes: Tensor  # what tokens write where the state before the block is zero
    reads: Tensor  # what the state before the block takes off that
    keys: Tensor  # decayed up to the block's end
    left: Tensor  # what the block leaves of a state


def second(inputs: Mapping[str, Tensor], sizes: Mapping[str, Any]) -> tuple[Tensor, ...]:
    """The outputs, and the pool of states with the owned rows written in place."""
    v, pool, index = inputs["v"], inputs["initial_state"], inputs["initial_state_indices"].long()
    owned = index >= 0
    state = pool[index.clamp(min=0)] * owned.view(-1, 1, 1, 1)
    decays = _decays(inputs, sizes)
    out = torch.empty_like(v)
    for start in range(0, v.shape[1], SPAN):
        span = slice(start, start + SPAN)
        rows = {name: inputs[name][:, span] for name in ("q", "k", "v", "b")}
        blocks = _blocks(rows, decays[:, span])
        made = []
        for queries, inner, writes, reads, keys, left in zip(*(part.unbind(1) for part in blocks), strict=True):
            new = writes - reads @ state
            made.append(queries @ state + inner @ new)
            state = left * state + keys.mT @ new
        out[:, span] = torch.cat(made, 2).transpose(1, 2)[:, : rows["v"].shape[1]].to(out.dtype)
    pool[index[owned]] = state[owned]
    return out, pool


def _decays(inputs: Mapping[str, Tensor], sizes: Mapping[str, Any]) -> Tensor:
    """The log decay of every token, [batch, token, head] float64."""
    beta, threshold = float(sizes.get("softplus_beta", 1.0)), float(sizes.get("softplus_threshold", 20.0))
    x = inputs["a"].double() + inputs["dt_bias"].double()
    soft = x.clamp(min=0) + (-(beta * x).abs()).exp().log1p() / beta
    return -inputs["A_log"].double().exp() * torch.where(beta * x > threshold, x, soft)


def _blocks(rows: Mapping[str, Tensor], decays: Tensor) -> Blocks:
    """The blocks that these tokens make, the last filled up with tokens that write nothing."""
    heads, key_dim = rows["v"].shape[2], rows["q"].shape[3]
    q, k = (_cut(_unit(rows[name]), heads) for name in ("q", "k"))
    v, beta = _cut(rows["v"], heads), _cut(rows["b"].float().sigmoid().unsqueeze(-1), heads)
    sums = _cut(decays.unsqueeze(-1), heads).cumsum(-2)
    upper = torch.ones(BLOCK, BLOCK, dtype=torch.bool, device=v.device).triu_(1)
    between = (sums - sums.mT).masked_fill_(upper, -torch.inf).exp_().float()
    begun, ending, left = sums.exp().float(), (sums[..., -1:, :] - sums).exp_().float(), sums[..., -1:, :].exp().float()
    # new[t] + beta[t] sum over s < t of between[t, s] (k[t] . k[s]) new[s] = beta[t] (v[t] - begun[t] k[t] . state)
    system = (k @ k.mT).mul_(between).mul_(beta)  # of which the solver takes the diagonal for ones
    right = torch.cat([v, k * begun], -1).mul_(beta)
    writes, reads = torch.linalg.solve_triangular(system, right, upper=False, unitriangular=True).split(
        [v.shape[-1], key_dim], -1
    )
    scaled = q.mul_(key_dim**-0.5)
    return Blocks(scaled * begun, (scaled @ k.mT).mul_(between), writes, reads, k * ending, left)


def _unit(x: Tensor) -> Tensor:
    """`x` with a norm of 1, but for what is near zero."""
    wide = x.float()
    return wide * (wide.square().sum(-1, keepdim=True) + 1e-6).rsqrt_()


def _cut(rows: Tensor, heads: int) -> Tensor:
    """`rows` [batch, token, head, d] as [batch, block, value head, token, d], filled up with zeros."""
    batch, tokens, own, width = rows.shape
    rows = rows if rows.dtype == torch.float64 else rows.float()
    full = torch.cat([rows, rows.new_zeros(batch, -tokens % BLOCK, own, width)], 1)
    wide = full.repeat_interleave(heads // own, 2)
    return wide.view(batch, -1, BLOCK, heads, width).transpose(2, 3)
