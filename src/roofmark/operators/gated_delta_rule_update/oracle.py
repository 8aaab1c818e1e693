"""The judge's side of `gated_delta_rule_update`: float64 values, and a right kernel's error."""

from __future__ import annotations

import random
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from roofmark.operators.draw import near
from roofmark.operators.expected import Expected

# The pool is one output, whichever batch entries own rows of it.
WHOLE = True
# Tokens that are worked off together, as deployed kernels for many tokens do.
CHUNK = 64
# Half a unit in the last place of bfloat16, relative; as a variance, where it is even spread.
ROUNDING = torch.finfo(torch.bfloat16).eps / 2
VARIANCE = ROUNDING**2 / 3
# float32 gates, exponentials and sums of one chunk, relative to the state: far below the roundings.
FLOAT32 = 2.0**-20
# Standard deviations that the sum of many independent roundings stays within.
DEVIATIONS = 5.0
BUDGET = 1 << 28


def neighbours(rng: random.Random, **sizes: Any) -> tuple[dict[str, Any], dict[str, Any]]:
    """One sequence of about the same length, and two or three short ones with a pool of another size."""
    first, second = near(rng, sizes["token_count"])
    batch = rng.choice((2, 3))
    pool = rng.choice([n for n in (3, 5, 6, 7) if n != sizes["state_count"]])
    return {**sizes, "token_count": first}, {
        **sizes, "token_count": -(-second // batch), "batch_size": batch, "state_count": pool,
    }  # fmt: skip


def expected_rows(inputs: Mapping[str, Tensor], sizes: Mapping[str, Any], index: Tensor) -> dict[str, Expected]:
    """All of `out` and `final_state`.

    Bound: a kernel may work off 64 tokens at a time on tensor cores, as the deployed one for prefill does, and round
    to bfloat16 what it multiplies: queries, keys, the inverse of the system, its two products, states and new values.
    These errors are independent: their variances go the way of the state, by the squares of its transition in a basis
    of which one axis is the keys' mean, and a right answer stays within some standard deviations. `out` is rounded
    once more.
    """
    pool, indices, v = inputs["initial_state"], inputs["initial_state_indices"].long(), inputs["v"]
    owned = indices >= 0
    batch, tokens, heads, value_dim = v.shape
    state = pool[indices.clamp(min=0)].double() * owned.view(-1, 1, 1, 1)
    variance = torch.zeros_like(state)
    out, bound = (torch.empty(v.shape, dtype=torch.float64, device=v.device) for _ in range(2))
    basis = _basis(inputs["k"], heads)
    per_chunk = 8 * batch * heads * (14 * CHUNK * max(sizes["key_dim"], value_dim) + 2 * sizes["key_dim"] ** 2)
    step = max(1, BUDGET // per_chunk)
    for start in range(0, -(-tokens // CHUNK), step):
        rows = slice(start * CHUNK, (start + step) * CHUNK)
        chunks = _Chunks(inputs, sizes, basis, rows)
        for n in range(chunks.count):
            state, variance, read, read_variance = chunks.advance(n, state, variance)
            part = slice((start + n) * CHUNK, min((start + n + 1) * CHUNK, tokens))
            out[:, part] = read.transpose(1, 2)[:, : part.stop - part.start]
            bound[:, part] = read_variance.transpose(1, 2)[:, : part.stop - part.start]
    bound.sqrt_().mul_(DEVIATIONS * (1 + ROUNDING)).add_(out.abs(), alpha=ROUNDING)
    final = pool.double()
    final_bound = torch.zeros_like(final)
    final[indices[owned]] = state[owned]
    final_bound[indices[owned]] = (basis.square() @ variance).sqrt_().mul_(DEVIATIONS)[owned]
    return {"out": Expected(out, bound), "final_state": Expected(final, final_bound)}


class _Chunks:
    """Some chunks that follow each other, [B, hv, N, 64, …] in float64, and how they move a state on.

    With the state S before a chunk, G the summed up log decays and L the strict lower triangle of
    beta_t e^(G_t - G_s) k_t.k_s, the tokens write new = (1 + L)^-1 (beta (v - e^G k S)).
    """

    def __init__(self, inputs: Mapping[str, Tensor], sizes: Mapping[str, Any], basis: Tensor, rows: slice) -> None:
        group = inputs["v"].shape[2] // inputs["q"].shape[2]
        q, k = (_normalised(inputs[name][:, rows], sizes).repeat_interleave(group, 2) for name in ("q", "k"))
        q, k, self.v = (_chunked(x) for x in (q * sizes["key_dim"] ** -0.5, k, inputs["v"][:, rows].double()))
        gate = inputs["a"][:, rows].double() + inputs["dt_bias"].double()
        gate = functional.softplus(gate, sizes["softplus_beta"], sizes["softplus_threshold"])
        total = _chunked((gate * -inputs["A_log"].double().exp()).unsqueeze(-1)).cumsum(-2)
        beta = _chunked(inputs["b"][:, rows].double().sigmoid().unsqueeze(-1))
        last = total[..., -1:, :]
        self.last, self.beta = last.exp(), beta
        self.keys, self.left = k * total.exp(), k * (last - total).exp()
        self.queries = q * total.exp()
        later = torch.ones(CHUNK, CHUNK, dtype=torch.bool, device=k.device).triu(1)
        between = (total - total.mT).masked_fill_(later, -torch.inf).exp_()
        system = k @ k.mT * between * beta
        one = torch.eye(CHUNK, dtype=torch.float64, device=k.device).expand(system.shape)
        self.inverse = torch.linalg.solve_triangular(system, one, upper=False, unitriangular=True)
        self.reads = self.inverse @ (beta * self.keys)
        self.weights = q @ k.mT * between
        self.count = k.shape[2]
        self.axes = basis.square()
        turned = basis.unsqueeze(2)
        self.turned = self.left @ turned, self.reads @ turned, (self.queries - self.weights @ self.reads) @ turned

    def advance(self, n: int, state: Tensor, variance: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """The state after chunk n, its variance, what the chunk's tokens read and its variance."""
        decay, beta, v, keys, left = (x[:, :, n] for x in (self.last, self.beta, self.v, self.keys, self.left))
        queries, inverse, reads, weights = (x[:, :, n] for x in (self.queries, self.inverse, self.reads, self.weights))
        wanted = beta * (v - keys @ state)
        new = inverse @ wanted
        after = decay * state + left.mT @ new
        turned_left, turned_reads, turned_queries = (x[:, :, n] for x in self.turned)
        transition = (turned_left.mT @ turned_reads).neg_()
        transition.diagonal(dim1=-2, dim2=-1).add_(decay.squeeze(-1))

        size = state.square()
        both = size + after.square()
        asked = (beta * keys).square() @ (size + both) + (beta * v).square() + wanted.square()
        found = 2 * reads.square() @ size + (inverse @ (beta * v)).square()
        rounded = (inverse.square() @ asked).add_(found).mul_(VARIANCE)
        again = new.square().mul_(VARIANCE)
        carried = transition.square_() @ variance + turned_left.square().mT @ (rounded + again)
        carried.add_(self.axes @ (left.square().mT @ again + after.square() * FLOAT32**2))
        fresh = weights.square() @ (rounded + 2 * again)
        seen = turned_queries.square() @ variance
        read_variance = seen + fresh + queries.square() @ (size + both) * VARIANCE
        return after, carried, queries @ state + weights @ new, read_variance


def _basis(k: Tensor, heads: int) -> Tensor:
    """Per batch entry and value head a reflection that takes the mean direction of the keys to the first axis."""
    mean = functional.normalize(k.double(), dim=-1).mean(1)
    first = torch.zeros_like(mean)
    first[..., 0] = 1
    normal = functional.normalize(functional.normalize(mean, dim=-1) - first, dim=-1).unsqueeze(-1)
    reflection = torch.eye(k.shape[-1], dtype=torch.float64, device=k.device) - 2 * normal * normal.mT
    return reflection.repeat_interleave(heads // k.shape[2], 1)


def _normalised(x: Tensor, sizes: Mapping[str, Any]) -> Tensor:
    wide = x.double()
    return wide / (wide.square().sum(-1, keepdim=True) + 1e-6).sqrt() if sizes["use_qk_l2norm"] else wide


def _chunked(x: Tensor) -> Tensor:
    """[B, T, heads, d] in chunks: [B, heads, N, 64, d], zeros after the last token."""
    padded = functional.pad(x, (0, 0, 0, 0, 0, -x.shape[1] % CHUNK))
    return padded.view(len(x), -1, CHUNK, *x.shape[2:]).permute(0, 3, 1, 2, 4)
