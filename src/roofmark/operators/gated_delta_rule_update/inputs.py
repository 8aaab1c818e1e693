"""Inputs of `gated_delta_rule_update`: what the first tokens write still counts at the end."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from roofmark.operators.draw import Draw
from roofmark.records import OutputSpec

# Tokens, batch entries and states of the corner cases.
CORNER_SIZES = {
    "one_token": (1, 1, 1),
    "decode": (1, 5, 7),
    "padded": (3, 4, 6),
    "batch": (67, 3, 6),
    "tail": (131, 1, 3),
    "no_decay": (96, 1, 2),
    "steep": (96, 1, 2),
    "open_gates": (96, 1, 2),
    "zeros": (67, 1, 2),
    "zero_state": (67, 1, 2),
    "equal_keys": (67, 1, 2),
}
# Tokens before keys hardly write any more to their quiet dimensions: what lies there is forgotten by decay alone.
FIRST, QUIET = 64, 2.0**-7
# Tokens of a sequence that decay the state, by up to e^-1/4 each; all others together by e^-1/2.
EVENTS, EVENT = 12, 0.25
# Share of the direction that all queries and keys of a head have in common, against their own.
COMMON = 1.75


def outputs(
    *,
    batch_size: int,
    token_count: int,
    num_v_heads: int,
    key_dim: int,
    value_dim: int,
    state_count: int,
    **_: Any,
) -> tuple[OutputSpec, ...]:
    state = (state_count, num_v_heads, key_dim, value_dim)
    return (
        OutputSpec(name="out", shape=(batch_size, token_count, num_v_heads, value_dim), dtype="bfloat16"),
        OutputSpec(name="final_state", shape=state, dtype="float32"),
    )


def make_inputs(
    *,
    batch_size: int,
    token_count: int,
    num_q_heads: int,
    num_v_heads: int,
    key_dim: int,
    value_dim: int,
    state_count: int,
    seed: int,
    device: str,
    **_: Any,
) -> dict[str, Tensor]:
    """`A_log` [hv] float32, `a` [B, T, hv], `dt_bias` [hv], `q`, `k` [B, T, hq, dk], `v` [B, T, hv, dv], `b`
    [B, T, hv] bfloat16, `initial_state` [S, hv, dk, dv] float32, `initial_state_indices` [B] int32.

    Queries and keys of a head share a direction, along which the states lie, so that outputs are not small against
    states. Keys hardly write to a quarter of the dimensions after the first tokens; over a whole sequence most heads
    decay there by some e^-2, one in eight forgets within a few tokens. Some queries, keys and values are zero.
    """
    draw = Draw(seed, device)
    rows = (batch_size, token_count)
    common = draw.uniform("common", (num_q_heads, key_dim), scale=COMMON)
    q, k = (_rows(draw, name, rows, common) for name in ("q", "k"))
    quiet = draw.bits("quiet", (num_q_heads, key_dim), torch.int64).argsort(-1) < key_dim // 4
    k[:, FIRST:].mul_(torch.where(quiet, QUIET, 1.0).to(torch.bfloat16))
    v = draw.uniform("v", (*rows, num_v_heads, value_dim), torch.bfloat16, 0.7)
    v.add_(draw.uniform("mean", (num_v_heads, value_dim), torch.bfloat16, 2.0))
    for name, tensor in (("q", q), ("k", k), ("v", v)):  # never the first token, which may be the only one
        tensor[:, draw.permutation(f"zero {name}", token_count - 1)[: token_count // 64] + 1] = 0
    a_log = draw.between("A_log", (num_v_heads,), -3.0, 0.0)
    dt_bias = draw.uniform("dt_bias", (num_v_heads,), torch.bfloat16, 2.0)
    group = num_v_heads // num_q_heads
    along = torch.nn.functional.normalize(common, dim=-1).repeat_interleave(group, 0)
    states = draw.uniform("state", (state_count, num_v_heads, key_dim, value_dim), scale=0.3)
    states.addcmul_(along.unsqueeze(-1), draw.uniform("along", (state_count, num_v_heads, 1, value_dim), scale=4.0))
    return {
        "A_log": a_log,
        "a": _gates(draw, rows, a_log, dt_bias),
        "dt_bias": dt_bias,
        "q": q,
        "k": k,
        "v": v,
        "b": draw.between("b", (*rows, num_v_heads), -2.5, 1.0).to(torch.bfloat16),
        "initial_state": states,
        "initial_state_indices": draw.permutation("index", state_count)[:batch_size].to(torch.int32),
    }


def _rows(draw: Draw, name: str, rows: tuple[int, int], common: Tensor) -> Tensor:
    """Queries or keys, each of a size of its own."""
    x = draw.uniform(name, (*rows, *common.shape), torch.bfloat16)
    size = torch.exp2(draw.between(f"{name} size", (*rows, len(common), 1), -2.0, 2.0))
    return x.add_(common.to(torch.bfloat16)).mul_(size.to(torch.bfloat16))


def _gates(draw: Draw, rows: tuple[int, int], a_log: Tensor, dt_bias: Tensor) -> Tensor:
    """`a` such that single tokens decay the state as wanted: [B, T, hv] bfloat16."""
    tokens, heads = rows[1], len(a_log)
    event = draw.between("event", (*rows, heads), 0.0, 1.0) < EVENTS / tokens
    fast = draw.permutation("fast", heads) < heads // 8
    largest = torch.where(fast, 0.2, torch.where(event, EVENT, 1 / tokens))
    decay = draw.between("decay", (*rows, heads), 0.02, 1.0).mul_(largest)
    return (torch.log(torch.expm1(decay / a_log.exp())) - dt_bias.float()).to(torch.bfloat16)


def corners(**sizes: Any) -> dict[str, dict[str, Any]]:
    """The corner cases, each at its own few tokens."""
    return {
        name: {**sizes, "token_count": tokens, "batch_size": batch, "state_count": states}
        for name, (tokens, batch, states) in CORNER_SIZES.items()
    }


def make_corner(name: str, *, seed: int, device: str, **sizes: Any) -> dict[str, Tensor]:
    made = make_inputs(seed=seed, device=device, **sizes)
    draw = Draw(seed, device)
    if name == "padded":  # the last entries begin with zeros and keep nothing
        made["initial_state_indices"][2:] = -1
    elif name == "no_decay":  # softplus of -100 is 0 in float32
        made["a"].fill_(-100.0)
    elif name == "steep":  # e^-g is beyond float32 after few tokens
        made["A_log"].fill_(1.5)
        made["a"] = draw.between("steep", made["a"].shape, 0.0, 4.0).to(torch.bfloat16)
    elif name == "open_gates":  # softplus on both sides of its threshold, and where exp overflows
        made["A_log"].fill_(-8.0)
        made["a"] = draw.between("open", made["a"].shape, 10.0, 110.0).to(torch.bfloat16)
        made["b"] = draw.uniform("b", made["b"].shape, torch.bfloat16, 100.0)
    elif name == "zeros":  # norms of nothing
        for key in ("q", "k", "v"):
            made[key][:, 1::3] = 0
    elif name == "zero_state":
        made["initial_state"][made["initial_state_indices"].long()] = 0
    elif name == "equal_keys":  # each token writes over what the one before it wrote
        made["k"][:] = made["k"][:, :1].clone()
        made["b"].fill_(8.0)
    return made
