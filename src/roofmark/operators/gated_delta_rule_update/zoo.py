"""Wrong and right answers of `gated_delta_rule_update`; see `roofmark.operators.zoo`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from roofmark.operators.zoo import Candidate, fp8, significant

BF16 = torch.bfloat16
CHUNK = 64
SLOW_TOKENS = 300
Inputs = Mapping[str, Tensor]
Sizes = dict[str, Any]
Answer = tuple[Tensor, Tensor]
Change = Callable[[Tensor], Tensor]


def _same(x: Tensor) -> Tensor:
    return x


def _bf16(x: Tensor) -> Tensor:
    return x.to(BF16).to(x.dtype)


@dataclass(frozen=True)
class Tokens:
    """What the recurrence takes of its tokens, [B, hv, T, …] in float32: q is scaled, decay a logarithm."""

    q: Tensor
    k: Tensor
    v: Tensor
    decay: Tensor
    beta: Tensor

    def part(self, rows: slice) -> Tokens:
        return Tokens(*(x[:, :, rows] for x in (self.q, self.k, self.v, self.decay, self.beta)))


def _normalised(x: Tensor, eps: float = 1e-6) -> Tensor:
    return x * torch.rsqrt(x.square().sum(-1, keepdim=True) + eps)


def _tokens(i: Inputs, s: Sizes, kind: torch.dtype = torch.float32, heads: Tensor | None = None) -> Tokens:
    heads = torch.arange(s["num_v_heads"]) // (s["num_v_heads"] // s["num_q_heads"]) if heads is None else heads
    q, k = (_normalised(i[name].to(kind))[:, :, heads].transpose(1, 2) for name in ("q", "k"))
    gate = functional.softplus(i["a"].to(kind) + i["dt_bias"].to(kind), s["softplus_beta"], s["softplus_threshold"])
    decay = (gate * -i["A_log"].to(kind).exp()).transpose(1, 2).unsqueeze(-1)
    beta = i["b"].to(kind).sigmoid().transpose(1, 2).unsqueeze(-1)
    return Tokens(q * s["key_dim"] ** -0.5, k, i["v"].to(kind).transpose(1, 2), decay, beta)


def _start(i: Inputs, indices: Tensor | None = None) -> Tensor:
    rows = (i["initial_state_indices"] if indices is None else indices).long()
    return i["initial_state"][rows.clamp(min=0)] * (rows >= 0).view(-1, 1, 1, 1)


def _placed(i: Inputs, state: Tensor) -> Tensor:
    """The pool with the owned rows replaced."""
    pool, rows = i["initial_state"].clone(), i["initial_state_indices"].long()
    pool[rows[rows >= 0]] = state[rows >= 0].float()
    return pool


def _chunk(
    state: Tensor, x: Tokens, rounded: Change = _same, *, first: int = 0, early: bool = False, delta: bool = True
) -> Answer:
    """What a chunk of tokens reads, and the state after it; `rounded` is done to whatever is multiplied.

    first: a token reads what was written up to so many tokens before it. early: the state is asked before it decays.
    delta: values are written less what the state says.
    """
    total = x.decay.cumsum(2)
    asked = total - x.decay if early else total
    last = total[:, :, -1:]
    k, q = rounded(x.k), rounded(x.q)
    inside = torch.ones(k.shape[2], k.shape[2]).tril()
    between = (asked - total.mT).clamp(max=0).exp() * inside.tril(-1)
    system = k @ k.mT * between * x.beta * delta + torch.eye(k.shape[2])
    inverse = rounded(torch.linalg.solve_triangular(system, torch.eye(k.shape[2]).to(system), upper=False))
    reads = rounded(inverse @ rounded(k * x.beta * asked.exp())) * delta
    new = rounded(inverse @ rounded(x.v * x.beta)) - reads @ rounded(state)
    weights = rounded(q @ k.mT * ((total - total.mT).clamp(max=0).exp() * inside).tril(-first))
    read = q @ rounded(state) * total.exp() + weights @ rounded(new)
    return read, state * last.exp() + k.mT @ rounded(new * (last - total).exp())


def _run(i: Inputs, s: Sizes, x: Tokens, start: Tensor | None = None, kept: Change = _same, **options: Any) -> Answer:
    """Chunk after chunk; `kept` is done to the state after each."""
    state = (_start(i) if start is None else start).to(x.q.dtype)
    out = torch.empty_like(i["v"])
    for begin in range(0, s["token_count"], CHUNK):
        part = slice(begin, begin + CHUNK)
        read, state = _chunk(state, x.part(part), **options)
        state = kept(state)
        out[:, part] = read.transpose(1, 2).to(BF16)
    return out, _placed(i, state)


def _with(i: Inputs, s: Sizes, **changed: Tensor) -> Answer:
    """The answer for tokens some of whose parts are changed."""
    return _run(i, s, replace(_tokens(i, s), **changed))


def _changed(i: Inputs, s: Sizes, **changed: Tensor) -> Answer:
    """The answer to inputs some of which are changed."""
    other = {**i, **changed}
    return _run(other, s, _tokens(other, s))


def _from(i: Inputs, s: Sizes, start: Tensor) -> Answer:
    return _run(i, s, _tokens(i, s), start)


def _gated(i: Inputs, s: Sizes, function: Change) -> Answer:
    """Another function for softplus."""
    gate = function(i["a"].float() + i["dt_bias"].float())
    return _with(i, s, decay=(gate * -i["A_log"].exp()).transpose(1, 2).unsqueeze(-1))


def _not_normalised(i: Inputs, s: Sizes, name: str) -> Answer:
    heads = torch.arange(s["num_v_heads"]) // (s["num_v_heads"] // s["num_q_heads"])
    plain = i[name].float()[:, :, heads].transpose(1, 2)
    return _with(i, s, **{name: plain * (s["key_dim"] ** -0.5 if name == "q" else 1.0)})


def _in_turn(i: Inputs, s: Sizes) -> Answer | None:
    if s["num_q_heads"] in (1, s["num_v_heads"]):
        return None
    return _run(i, s, _tokens(i, s, heads=torch.arange(s["num_v_heads"]) % s["num_q_heads"]))


def _first_head(i: Inputs, s: Sizes) -> Answer | None:
    if s["num_q_heads"] == 1:
        return None
    return _run(i, s, _tokens(i, s, heads=torch.zeros(s["num_v_heads"], dtype=torch.int64)))


def _window(i: Inputs, s: Sizes, size: int) -> Answer | None:
    """Every `size` tokens, counted from the end, begin with zeros; None where there are no more."""
    if s["token_count"] <= size:
        return None
    x, missing = _tokens(i, s), -s["token_count"] % size
    padded = [functional.pad(p, (0, 0, missing, 0)) for p in (x.q, x.k, x.v, x.decay, x.beta)]
    start = torch.zeros_like(_start(i))
    out, state = torch.empty_like(i["v"]), start
    for begin in range(0, s["token_count"] + missing, size):
        read, state = _chunk(start, Tokens(*(p[:, :, begin : begin + size] for p in padded)))
        rows = slice(max(begin - missing, 0), begin + size - missing)
        out[:, rows] = read.transpose(1, 2)[:, max(missing - begin, 0) :].to(BF16)
    return out, _placed(i, state)


def _first_rows(i: Inputs, s: Sizes) -> Answer | None:
    """The first rows of the pool, whatever the indices say; None where they say so."""
    rows = torch.arange(s["batch_size"], dtype=i["initial_state_indices"].dtype)
    if (rows == i["initial_state_indices"]).all():
        return None
    return _changed(i, s, initial_state_indices=rows)


def _next_row(i: Inputs, s: Sizes) -> Answer | None:
    """The states are read one row on and written to the right one."""
    return (
        _from(i, s, i["initial_state"].roll(-1, 0)[i["initial_state_indices"].long()]) if s["state_count"] > 1 else None
    )


def _pool_not_kept(i: Inputs, s: Sizes) -> Answer | None:
    """Rows of the pool that nobody owns are zero."""
    if s["state_count"] <= s["batch_size"]:
        return None
    out, pool = _run(i, s, _tokens(i, s))
    rows = i["initial_state_indices"].long()
    owned = torch.zeros(len(pool), dtype=torch.bool).index_fill(0, rows[rows >= 0], True)
    return out, pool * owned.view(-1, 1, 1, 1)


def _last_token_not_kept(i: Inputs, s: Sizes) -> Answer:
    """The pool gets the state before the last token."""
    x = _tokens(i, s)
    silent = torch.arange(s["token_count"]).view(-1, 1) == s["token_count"] - 1
    before = replace(x, k=x.k.masked_fill(silent, 0.0), decay=x.decay.masked_fill(silent, 0.0))
    return _run(i, s, x)[0], _run(i, s, before)[1]


def _token_by_token(i: Inputs, s: Sizes, kind: torch.dtype, kept: Change = _same) -> Answer | None:
    """As the deployed kernel for decode does; slow, so few tokens alone."""
    if s["token_count"] > SLOW_TOKENS:
        return None
    x = _tokens(i, s, kind)
    x_gate = i["a"].to(kind) + i["dt_bias"].to(kind)
    gate = torch.where(x_gate > s["softplus_threshold"], x_gate, torch.log(1 + torch.exp(x_gate)))
    decay = (gate * -i["A_log"].to(kind).exp()).exp()
    state, out = _start(i).to(kind), torch.empty_like(i["v"])
    for t in range(s["token_count"]):
        q, k = x.q[:, :, t].unsqueeze(-2), x.k[:, :, t].unsqueeze(-2)
        state = state * decay[:, t, :, None, None]
        new = x.beta[:, :, t].unsqueeze(-1) * (x.v[:, :, t].unsqueeze(-2) - k @ state)
        state = kept(state + k.mT @ new)
        out[:, t] = (q @ state).squeeze(-2).to(BF16)
    return out, _placed(i, state)


def _state_in_bf16_between_chunks(i: Inputs, s: Sizes) -> Answer | None:
    """What fewer chunks round is no more than what their products do."""
    return _run(i, s, _tokens(i, s), kept=_bf16) if s["token_count"] > 4 * CHUNK else None


def _state_of_16_bits(i: Inputs, s: Sizes) -> Answer | None:
    """Where the one token hardly writes nothing is off but what float32 rounds; later this is lost in products'."""
    if s["token_count"] > 1:
        return None
    return _run(i, s, _tokens(i, s), kept=lambda state: significant(state, 16))


ROWS = ()
WRONG: dict[str, Candidate] = {
    "no initial state": lambda i, s: _from(i, s, _start(i) * 0),
    "next row of the pool": _next_row,
    "first rows of the pool": _first_rows,
    "state transposed": lambda i, s: _from(i, s, _start(i).mT) if s["key_dim"] == s["value_dim"] else None,
    "pool as it was": lambda i, s: (_run(i, s, _tokens(i, s))[0], i["initial_state"]),
    "pool not kept": _pool_not_kept,
    "last token not kept": _last_token_not_kept,
    "no decay": lambda i, s: _with(i, s, decay=_tokens(i, s).decay * 0),
    "next head's decay": lambda i, s: _with(i, s, decay=_tokens(i, s).decay.roll(1, 1)),
    "mean decay": lambda i, s: _with(
        i, s, decay=_tokens(i, s).decay.mean(1, keepdim=True).expand(-1, s["num_v_heads"], -1, -1)
    ),
    "no dt_bias": lambda i, s: _changed(i, s, dt_bias=i["dt_bias"] * 0),
    "no A_log": lambda i, s: _changed(i, s, A_log=i["A_log"] * 0),
    "A_log taken twice": lambda i, s: _changed(i, s, A_log=2 * i["A_log"]),
    "exp for softplus": lambda i, s: _gated(i, s, torch.exp),
    "relu for softplus": lambda i, s: _gated(i, s, torch.relu),
    "sigmoid for softplus": lambda i, s: _gated(i, s, torch.sigmoid),
    "asked before it decays": lambda i, s: _run(i, s, _tokens(i, s), early=True),
    "read before it is written": lambda i, s: _run(i, s, _tokens(i, s), first=1),
    "no delta": lambda i, s: _run(i, s, _tokens(i, s), delta=False),
    "no beta": lambda i, s: _with(i, s, beta=torch.ones_like(_tokens(i, s).beta)),
    "half for beta": lambda i, s: _with(i, s, beta=torch.full_like(_tokens(i, s).beta, 0.5)),
    "next head's beta": lambda i, s: _with(i, s, beta=_tokens(i, s).beta.roll(1, 1)),
    "q not normalised": lambda i, s: _not_normalised(i, s, "q"),
    "k not normalised": lambda i, s: _not_normalised(i, s, "k"),
    "no scale": lambda i, s: _with(i, s, q=_tokens(i, s).q * s["key_dim"] ** 0.5),
    "scale 1 / d": lambda i, s: _with(i, s, q=_tokens(i, s).q * s["key_dim"] ** -0.5),
    "next head's values": lambda i, s: _with(i, s, v=_tokens(i, s).v.roll(1, 1)),
    "query heads in turn": _in_turn,
    "first query head": _first_head,
    "four tokens at a time": lambda i, s: _window(i, s, 4),
    "64 tokens at a time": lambda i, s: _window(i, s, 64),
    "state in bf16": lambda i, s: _token_by_token(i, s, torch.float32, _bf16),
    "state in bf16 between chunks": _state_in_bf16_between_chunks,
    "state of 16 bits": _state_of_16_bits,
    "state in fp8": lambda i, s: _run(i, s, _tokens(i, s), kept=fp8),
    "q in fp8": lambda i, s: _with(i, s, q=fp8(_tokens(i, s).q * 16) / 16),
    "k in fp8": lambda i, s: _with(i, s, k=fp8(_tokens(i, s).k)),
    "v in fp8": lambda i, s: _with(i, s, v=fp8(_tokens(i, s).v)),
    "state from v in fp8": lambda i, s: (_run(i, s, _tokens(i, s))[0], _with(i, s, v=fp8(_tokens(i, s).v))[1]),
    "beta in fp8": lambda i, s: _with(i, s, beta=fp8(_tokens(i, s).beta)),
    "decays in bf16": lambda i, s: _with(i, s, decay=_bf16(_tokens(i, s).decay.exp()).log()),
}


RIGHT: dict[str, Candidate] = {
    "token by token": lambda i, s: _token_by_token(i, s, torch.float32),
    "token by token, float64": lambda i, s: _token_by_token(i, s, torch.float64),
    "by chunks": lambda i, s: _run(i, s, _tokens(i, s)),
    "by chunks, products in bf16": lambda i, s: _run(i, s, _tokens(i, s), rounded=_bf16),
}


WRONG_ON_CORNERS: dict[tuple[str, str], Candidate] = {}
