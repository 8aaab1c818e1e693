"""Inputs of `chunk_gated_delta_rule_state`: what the first tokens write still counts at the end."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from roofmark.operators.draw import Draw
from roofmark.records import OutputSpec

# Tokens, batch entries and states of the corner cases.
CORNER_SIZES = {
    "one_token": (1, 1, 1),
    "one_chunk": (64, 1, 2),
    "one_more": (65, 1, 3),
    "tail": (131, 1, 3),
    "batch": (67, 3, 6),
    "no_decay": (160, 1, 2),
    "steep": (160, 1, 2),
    "zero_state": (96, 1, 2),
    "zero_keys": (96, 1, 2),
}
# Keys hardly write to their quiet dimensions after the first chunk: what lies there is forgotten by decay alone.
QUIET = 2.0**-7
# How much larger states are there: what is rounded off them at the end is more than what products round.
LARGE = 4.0
# Tokens of a sequence that decay the state, by up to e^-1/4 each, the last always; all others together by e^-1/2.
EVENTS, EVENT = 12, 0.25


def outputs(
    *,
    batch_size: int,
    token_count: int,
    num_v_heads: int,
    key_dim: int,
    value_dim: int,
    chunk_size: int,
    state_count: int,
    **_: Any,
) -> tuple[OutputSpec, ...]:
    state = (num_v_heads, key_dim, value_dim)
    chunks = -(-token_count // chunk_size)
    return (
        OutputSpec(name="h", shape=(batch_size, chunks, *state), dtype="bfloat16"),
        OutputSpec(name="v_new", shape=(batch_size, token_count, num_v_heads, value_dim), dtype="bfloat16"),
        OutputSpec(name="final_state", shape=(state_count, *state), dtype="float32"),
    )


def make_inputs(
    *,
    batch_size: int,
    token_count: int,
    num_k_heads: int,
    num_v_heads: int,
    key_dim: int,
    value_dim: int,
    chunk_size: int,
    state_count: int,
    seed: int,
    device: str,
) -> dict[str, Tensor]:
    """`k` [B, T, hk, dk], `w` [B, T, hv, dk], `u` [B, T, hv, dv] bfloat16, `g` [B, T, hv] float32, `initial_state`
    [S, hv, dk, dv] float32 and `initial_state_indices` [B] int32, rows of their own.

    Keys have norm 1, and w is along its token's key, so that the recurrence is stable; w also reads the quarter of
    the dimensions that keys write to in the first chunk alone. There, over a whole sequence, most heads decay by
    some e^-2; one in eight forgets within a chunk. Some keys and values are zero.
    """
    draw = Draw(seed, device)
    rows = (batch_size, token_count)
    quiet = draw.bits("quiet", (num_k_heads, key_dim), torch.int64).argsort(-1) < key_dim // 4
    k = draw.uniform("k", (*rows, num_k_heads, key_dim))
    k[:, chunk_size:].mul_(torch.where(quiet, QUIET, 1.0))
    k.div_(k.norm(dim=-1, keepdim=True))
    u = draw.uniform("u", (*rows, num_v_heads, value_dim), torch.bfloat16, 0.6)
    for name, tensor in (("k", k), ("u", u)):  # never the first token, which may be the only one
        tensor[:, draw.permutation(f"zero {name}", token_count - 1)[: token_count // 64] + 1] = 0
    g = _cumulative(_steps(draw, rows, num_v_heads), chunk_size)
    group = num_v_heads // num_k_heads
    beta = draw.between("beta", (*rows, num_v_heads), 0.1, 0.5).mul_(g.exp()).unsqueeze(-1)
    wide_quiet = quiet.repeat_interleave(group, 0)
    w = draw.uniform("w", (*rows, num_v_heads, key_dim), scale=0.02).mul_(wide_quiet)
    w.addcmul_(k.repeat_interleave(group, 2), beta)
    states = draw.uniform("state", (state_count, num_v_heads, key_dim, value_dim))
    states.mul_(torch.where(wide_quiet, LARGE, 1.0).unsqueeze(-1))
    return {
        "k": k.to(torch.bfloat16),
        "w": w.to(torch.bfloat16),
        "u": u,
        "g": g,
        "initial_state": states,
        "initial_state_indices": draw.permutation("index", state_count)[:batch_size].to(torch.int32),
    }


def _steps(draw: Draw, rows: tuple[int, int], heads: int) -> Tensor:
    """The log decays of single tokens, [B, T, heads] float32."""
    tokens = rows[1]
    steps = draw.between("g", (*rows, heads), -1.0, 0.0)
    event = draw.between("event", (*rows, heads), 0.0, 1.0) < EVENTS / tokens
    event[:, -1] = True  # else a long sequence may end in a few tokens that hardly decay, and none need read theirs
    fast = draw.permutation("fast", heads) < heads // 8
    return steps.mul_(torch.where(fast, 0.2, torch.where(event, EVENT, 1 / tokens)))


def _cumulative(steps: Tensor, chunk_size: int) -> Tensor:
    """Sums of `steps` from the start of each chunk."""
    parts = [part.cumsum(1) for part in torch.split(steps, chunk_size, dim=1)]
    return torch.cat(parts, 1)


def corners(**sizes: Any) -> dict[str, dict[str, Any]]:
    """The corner cases, each at its own few tokens."""
    return {
        name: {**sizes, "token_count": tokens, "batch_size": batch, "state_count": states}
        for name, (tokens, batch, states) in CORNER_SIZES.items()
    }


def make_corner(name: str, *, seed: int, device: str, **sizes: Any) -> dict[str, Tensor]:
    made = make_inputs(seed=seed, device=device, **sizes)
    if name == "no_decay":
        made["g"].zero_()
    elif name == "steep":  # e^-g is beyond float32 at the end of a chunk
        steps = Draw(seed, device).between("steep", made["g"].shape, -8.0, 0.0)
        made["g"] = _cumulative(steps, sizes["chunk_size"])
    elif name == "zero_state":
        made["initial_state"][made["initial_state_indices"].long()] = 0
    elif name == "zero_keys":  # nothing is written
        made["k"].zero_()
    return made
