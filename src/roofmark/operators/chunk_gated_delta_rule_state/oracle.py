"""The judge's side of `chunk_gated_delta_rule_state`: float64 values, and a right kernel's error."""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from roofmark.operators.draw import near
from roofmark.operators.expected import Expected

# The pool is one output, whichever batch entries own rows of it.
WHOLE = True
# Half a unit in the last place of bfloat16, relative; as a variance, where it is even spread.
ROUNDING = torch.finfo(torch.bfloat16).eps / 2
VARIANCE = ROUNDING**2 / 3
# float32 exponentials and sums of one chunk, relative to the state: far below the roundings.
FLOAT32 = 2.0**-20
# Standard deviations that the sum of many independent roundings stays within.
DEVIATIONS = 5.0
BUDGET = 1 << 28


def neighbours(rng: random.Random, **sizes: Any) -> tuple[dict[str, Any], dict[str, Any]]:
    """One sequence of about the same length, and two short ones with a pool of another size."""
    first, second = near(rng, sizes["token_count"])
    pool = rng.choice([n for n in (3, 5, 6, 7) if n != sizes["state_count"]])
    return {**sizes, "token_count": first}, {
        **sizes, "token_count": (second + 1) // 2, "batch_size": 2, "state_count": pool,
    }  # fmt: skip


def expected_rows(inputs: Mapping[str, Tensor], sizes: Mapping[str, Any], index: Tensor) -> dict[str, Expected]:
    """All of `h`, `v_new` and `final_state`.

    Bound: before products the state is rounded to bfloat16, and the new values twice, as they are stored and once
    decayed (or the decayed keys), or none of it. These errors are independent: their variances go the way of the
    state (see `_Error`), and a right answer stays within some standard deviations. `h` and `v_new` are rounded once
    more.
    """
    pool, owned = inputs["initial_state"], inputs["initial_state_indices"].long()
    size, u = sizes["chunk_size"], inputs["u"]
    batch, tokens, heads, value_dim = u.shape
    shape = (batch, -(-tokens // size), *pool.shape[1:])
    h, h_bound = (torch.empty(shape, dtype=torch.float64, device=u.device) for _ in range(2))
    new, new_bound = (torch.empty(u.shape, dtype=torch.float64, device=u.device) for _ in range(2))
    state = pool[owned].double()
    error = _Error(torch.zeros_like(state), state.new_zeros(*state.shape[:2], 0, state.shape[2]), state[:, :, :0])
    per_chunk = 8 * batch * heads * (8 * size * max(sizes["key_dim"], value_dim) + 4 * sizes["key_dim"] ** 2)
    step = max(1, BUDGET // per_chunk)
    for start in range(0, shape[1], step):
        rows = slice(start * size, (start + step) * size)
        chunks = _Chunks(inputs, rows, size)
        for n in range(chunks.count):
            h[:, start + n], h_bound[:, start + n] = state, error.variance()
            state, error, values, values_variance = chunks.advance(n, state, error)
            part = slice((start + n) * size, min((start + n + 1) * size, tokens))
            length = part.stop - part.start
            new[:, part] = values.transpose(1, 2)[:, :length]
            new_bound[:, part] = values_variance.transpose(1, 2)[:, :length]
    for bound, value in ((h_bound, h), (new_bound, new)):
        bound.sqrt_().mul_(DEVIATIONS * (1 + ROUNDING)).add_(value.abs(), alpha=ROUNDING)
    final = pool.double()
    final_bound = torch.zeros_like(final)
    final[owned], final_bound[owned] = state, error.variance().sqrt_().mul_(DEVIATIONS)
    return {"h": Expected(h, h_bound), "v_new": Expected(new, new_bound), "final_state": Expected(final, final_bound)}


@dataclass(frozen=True)
class _Error:
    """The variance of a state's error: [B, hv, …] in float64.

    What a token's new value is off by, all elements that it writes in a column are off by together, and a read adds
    them up: where few tokens matter, one that reads along the key of one of them finds more than were they apart. So
    what the last chunk's tokens wrote is kept by `keys` [tokens, dk] and the variance `written` [tokens, dv] of their
    values; by another chunk on it has met many keys, and `old` [dk, dv] has the variances of elements alone.
    """

    old: Tensor
    keys: Tensor
    written: Tensor

    def variance(self) -> Tensor:
        """Of each element of the state."""
        return self.seen(torch.eye(self.old.shape[-2]).to(self.old))

    def seen(self, through: Tensor) -> Tensor:
        """Of each element of `through` [B, hv, …, dk] times the state."""
        return through.square() @ self.old + (through @ self.keys.mT).square_() @ self.written


class _Chunks:
    """Some chunks that follow each other, [B, hv, N, …] in float64, and how they move a state on."""

    def __init__(self, inputs: Mapping[str, Tensor], rows: slice, size: int) -> None:
        group = inputs["u"].shape[2] // inputs["k"].shape[2]
        keys = _chunked(inputs["k"][:, rows].double().repeat_interleave(group, 2), size)
        g = inputs["g"][:, rows].double().unsqueeze(-1)
        last = g[:, size - 1 :: size]
        if g.shape[1] % size:
            last = torch.cat([last, g[:, -1:]], 1)
        self.decay = last.exp().transpose(1, 2).unsqueeze(-1)
        left = (last.repeat_interleave(size, 1)[:, : g.shape[1]] - g).exp()
        self.keys = keys * _chunked(left, size)
        self.reads = _chunked(inputs["w"][:, rows].double(), size)
        self.values = _chunked(inputs["u"][:, rows].double(), size)
        self.transition = (self.keys.mT @ self.reads).neg_()
        self.transition.diagonal(dim1=-2, dim2=-1).add_(self.decay.squeeze(-1))
        self.count = self.keys.shape[2]

    def advance(self, n: int, state: Tensor, error: _Error) -> tuple[Tensor, _Error, Tensor, Tensor]:
        """The state after chunk n, its error, the chunk's new values and their variance."""
        transition, keys, reads = (x[:, :, n] for x in (self.transition, self.keys, self.reads))
        values = self.values[:, :, n] - reads @ state
        after = self.decay[:, :, n] * state + keys.mT @ values
        rounded = reads.square() @ state.square() * VARIANCE
        old = error.seen(transition) + (after * FLOAT32).square()
        fresh = _Error(old, keys, rounded + values.square() * (2 * VARIANCE))
        return after, fresh, values, rounded + error.seen(reads)


def _chunked(x: Tensor, size: int) -> Tensor:
    """[B, T, heads, d] in chunks: [B, heads, N, size, d], zeros after the last token."""
    padded = functional.pad(x, (0, 0, 0, 0, 0, -x.shape[1] % size))
    return padded.view(len(x), -1, size, *x.shape[2:]).permute(0, 3, 1, 2, 4)
