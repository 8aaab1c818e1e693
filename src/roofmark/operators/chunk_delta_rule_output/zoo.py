"""Wrong and right answers of `chunk_delta_rule_output`; see `roofmark.operators.zoo`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from roofmark.operators.zoo import Candidate, fp8

BF16 = torch.bfloat16
SLOW_TOKENS = 300
Inputs = Mapping[str, Tensor]
Sizes = dict[str, Any]


def _chunked(x: Tensor, size: int) -> Tensor:
    """[B, T, heads, d] to [B, N, heads, size, d], zeros after the last token."""
    padded = functional.pad(x, (0, 0, 0, 0, 0, -x.shape[1] % size))
    return padded.view(len(x), -1, size, *x.shape[2:]).transpose(2, 3)


def _queries(i: Inputs, s: Sizes, name: str = "q") -> Tensor:
    """Queries or keys for each head of the values, float32, in chunks."""
    heads = torch.arange(s["num_v_heads"]) // (s["num_v_heads"] // s["num_q_heads"])
    return _chunked(i[name].float()[:, :, heads], s["chunk_size"])


def _decays(i: Inputs, s: Sizes) -> Tensor:
    return _chunked(i["g"].unsqueeze(-1), s["chunk_size"])


def _before(i: Inputs, s: Sizes) -> Tensor:
    """What is read from the state before the chunk."""
    return _queries(i, s) @ i["h"].float() * _decays(i, s).exp()


def _weights(i: Inputs, s: Sizes, first: int = -1000, last: int = 0) -> Tensor:
    """Weights [B, N, hv, size, size] of the values of tokens `first` to `last` after each one's own."""
    products = _queries(i, s) @ _queries(i, s, "k").mT
    g = _decays(i, s)
    return (products * (g - g.mT).clamp(max=0).exp()).tril(last).triu(first)


def _out(i: Inputs, s: Sizes, before: Tensor, weights: Tensor, scale: float | None = None) -> Tensor:
    total = before + weights @ _chunked(i["v"].float(), s["chunk_size"])
    rows = total.transpose(2, 3).flatten(1, 2)[:, : s["token_count"]]
    return (rows * (s["key_dim"] ** -0.5 if scale is None else scale)).to(BF16)


def _answer(i: Inputs, s: Sizes, **changed: Tensor) -> Tensor:
    """The answer to inputs some of which are changed."""
    other = {**i, **changed}
    return _out(other, s, _before(other, s), _weights(other, s))


def _in_fp8(i: Inputs, s: Sizes, name: str) -> Tensor:
    return _answer(i, s, **{name: fp8(i[name].float())})


def _steps(i: Inputs, s: Sizes) -> Tensor:
    """The decays of single tokens, not summed up."""
    g = _decays(i, s)
    steps = torch.cat([g[..., :1, :], g[..., 1:, :] - g[..., :-1, :]], -2)
    return steps.squeeze(-1).transpose(2, 3).flatten(1, 2)[:, : s["token_count"]]


def _running(i: Inputs, s: Sizes) -> Tensor:
    """The decays summed up over all chunks."""
    return _steps(i, s).cumsum(1)


def _other_heads(i: Inputs, s: Sizes) -> Tensor:
    """Value heads on the query heads in turn."""
    heads = torch.arange(s["num_v_heads"]) % s["num_q_heads"]
    wide = {name: i[name][:, :, heads] for name in ("q", "k")}
    return _answer({**i, **wide}, {**s, "num_q_heads": s["num_v_heads"]})


def _first_head(i: Inputs, s: Sizes) -> Tensor:
    return _answer(i, s, **{name: i[name][:, :, :1].expand_as(i[name]) for name in ("q", "k")})


def _last_chunk_left_out(i: Inputs, s: Sizes) -> Tensor | None:
    out = _answer(i, s)
    rest = s["token_count"] // s["chunk_size"] * s["chunk_size"]
    if rest in (0, s["token_count"]):
        return None
    out[:, rest:] = 0
    return out


def _several(i: Inputs, made: Tensor) -> Tensor | None:
    """`made`, unless there is one chunk alone."""
    return made if i["h"].shape[1] > 1 else None


ROWS = ()
WRONG: dict[str, Candidate] = {
    "no state": lambda i, s: _out(i, s, _before(i, s) * 0, _weights(i, s)),
    "state alone": lambda i, s: _out(i, s, _before(i, s), _weights(i, s) * 0),
    "no decay": lambda i, s: _answer(i, s, g=i["g"] * 0),
    "state not decayed": lambda i, s: _out(i, s, _before({**i, "g": i["g"] * 0}, s), _weights(i, s)),
    "tokens not decayed": lambda i, s: _out(i, s, _before(i, s), _weights({**i, "g": i["g"] * 0}, s)),
    "tokens decayed like the state": lambda i, s: _out(
        i, s, _before(i, s), _weights({**i, "g": i["g"] * 0}, s) * _decays(i, s).exp()
    ),
    "decays not summed up": lambda i, s: _answer(i, s, g=_steps(i, s)),
    "decays summed up over chunks": lambda i, s: _several(i, _answer(i, s, g=_running(i, s))),
    "mean decay": lambda i, s: _answer(i, s, g=i["g"].mean(2, keepdim=True).expand_as(i["g"])),
    "next head's decay": lambda i, s: _answer(i, s, g=i["g"].roll(1, 2)),
    "not causal": lambda i, s: _out(i, s, _before(i, s), _weights(i, s, last=1000)),
    "own token left out": lambda i, s: _out(i, s, _before(i, s), _weights(i, s, last=-1)),
    "own token alone": lambda i, s: _out(i, s, _before(i, s), _weights(i, s, first=0)),
    "last four tokens": lambda i, s: _out(i, s, _before(i, s), _weights(i, s, first=-3)),
    "last 32 tokens": lambda i, s: _out(i, s, _before(i, s), _weights(i, s, first=-31)),
    "first state for all chunks": lambda i, s: _several(i, _answer(i, s, h=i["h"][:, :1].expand_as(i["h"]))),
    "next chunk's state": lambda i, s: _several(i, _answer(i, s, h=i["h"].roll(-1, 1))),
    "state transposed": lambda i, s: _answer(i, s, h=i["h"].mT) if s["key_dim"] == s["value_dim"] else None,
    "mean of the states": lambda i, s: _answer(i, s, h=i["h"].float().mean(2, keepdim=True).expand(i["h"].shape)),
    "next head's values": lambda i, s: _answer(i, s, v=i["v"].roll(1, 2)),
    "mean of the values": lambda i, s: _answer(i, s, v=i["v"].float().mean(1, keepdim=True).expand_as(i["v"])),
    "query heads in turn": _other_heads,
    "first query head": _first_head,
    "no scale": lambda i, s: _out(i, s, _before(i, s), _weights(i, s), 1.0),
    "scale 1 / d": lambda i, s: _out(i, s, _before(i, s), _weights(i, s), 1 / s["key_dim"]),
    "last chunk left out": _last_chunk_left_out,
    "q in fp8": lambda i, s: _in_fp8(i, s, "q"),
    "k in fp8": lambda i, s: _in_fp8(i, s, "k"),
    "v in fp8": lambda i, s: _in_fp8(i, s, "v"),
    "state in fp8": lambda i, s: _in_fp8(i, s, "h"),
    "weights in fp8": lambda i, s: _out(i, s, _before(i, s), fp8(_weights(i, s))),
    "decays in bf16": lambda i, s: _answer(i, s, g=i["g"].to(BF16).float()),
    "q decayed in bf16": lambda i, s: _out(
        i, s, (_queries(i, s) * _decays(i, s).exp()).to(BF16).float() @ i["h"].float(), _weights(i, s)
    ),
    "state's part in bf16": lambda i, s: _out(i, s, _before(i, s).to(BF16).float(), _weights(i, s)),
}


def _token_by_token(i: Inputs, s: Sizes) -> Tensor | None:
    """The state moves on by k v of every token and is read after it, in float64; slow, so few tokens alone."""
    if s["token_count"] > SLOW_TOKENS:
        return None
    heads = torch.arange(s["num_v_heads"]) // (s["num_v_heads"] // s["num_q_heads"])
    q, k = (i[name].double()[:, :, heads] for name in ("q", "k"))
    g = _steps({**i, "g": i["g"].double()}, s).exp()
    out = torch.empty_like(i["v"])
    for t in range(s["token_count"]):
        if t % s["chunk_size"] == 0:
            state = i["h"][:, t // s["chunk_size"]].double()
        state = state * g[:, t, :, None, None] + k[:, t].unsqueeze(-1) * i["v"][:, t].double().unsqueeze(-2)
        out[:, t] = ((q[:, t].unsqueeze(-2) @ state).squeeze(-2) * s["key_dim"] ** -0.5).to(BF16)
    return out


RIGHT: dict[str, Candidate] = {
    "weights in bf16": lambda i, s: _out(i, s, _before(i, s), _weights(i, s).to(BF16).float()),
    "float32": _answer,
    "token by token": _token_by_token,
}


def _apart(i: Inputs, s: Sizes) -> Tensor:
    """The decay between two tokens as a quotient, which float32 can't hold where decays are steep."""
    g = _decays(i, s)
    products = (_queries(i, s) * g.exp()) @ (_queries(i, s, "k") * (-g).exp()).mT
    return _out(i, s, _before(i, s), products.tril())


def _masked_after(i: Inputs, s: Sizes) -> Tensor:
    """Tokens to come are taken out by a product with zero, after their decays have overflown."""
    g = _decays(i, s)
    products = _queries(i, s) @ _queries(i, s, "k").mT * (g - g.mT).exp()
    return _out(i, s, _before(i, s), products * torch.ones_like(products).tril())


WRONG_ON_CORNERS: dict[tuple[str, str], Candidate] = {
    ("steep", "decays apart"): _apart,
    ("steep", "masked after the exponential"): _masked_after,
    ("no_decay", "last four tokens"): WRONG["last four tokens"],
    ("tail", "last chunk left out"): _last_chunk_left_out,
    ("one_more", "last chunk left out"): _last_chunk_left_out,
}
