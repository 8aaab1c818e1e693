"""Inputs of `chunk_delta_rule_output`: state and chunk count about equally, decays differ from head to head."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from roofmark.operators.draw import Draw
from roofmark.records import OutputSpec

# Tokens and batch entries of the corner cases.
CORNER_SIZES = {
    "one_token": (1, 1),
    "one_chunk": (64, 1),
    "one_more": (65, 1),
    "tail": (131, 1),
    "batch": (67, 3),
    "no_decay": (96, 1),
    "steep": (96, 1),
    "zeros": (67, 1),
}


def outputs(*, batch_size: int, token_count: int, num_v_heads: int, value_dim: int, **_: Any) -> tuple[OutputSpec, ...]:
    return (OutputSpec(name="out", shape=(batch_size, token_count, num_v_heads, value_dim), dtype="bfloat16"),)


def make_inputs(
    *,
    batch_size: int,
    token_count: int,
    num_q_heads: int,
    num_v_heads: int,
    key_dim: int,
    value_dim: int,
    chunk_size: int,
    seed: int,
    device: str,
) -> dict[str, Tensor]:
    """`q`, `k` [B, T, hq, dk], `v` [B, T, hv, dv], `h` [B, N, hv, dk, dv] bfloat16, `g` [B, T, hv] float32.

    Over a chunk most heads decay by e^-0.3 to e^-2; of every eight one hardly decays and one forgets within a few
    tokens. Some queries, keys and values are zero, and so is the first state of some heads.
    """
    draw = Draw(seed, device)
    rows = (batch_size, token_count)
    q = draw.uniform("q", (*rows, num_q_heads, key_dim), torch.bfloat16, 1.5)
    k = draw.uniform("k", (*rows, num_q_heads, key_dim), torch.bfloat16, 0.3)
    v = draw.uniform("v", (*rows, num_v_heads, value_dim), torch.bfloat16)
    chunks = -(-token_count // chunk_size)
    h = draw.uniform("h", (batch_size, chunks, num_v_heads, key_dim, value_dim), torch.bfloat16)
    h[:, 0, draw.permutation("fresh", num_v_heads)[: num_v_heads // 4]] = 0
    for i, name in enumerate(("q", "k", "v")):  # never the first token, which may be the only one
        zero = draw.permutation(f"zero {name}", token_count - 1)[: token_count // 64] + 1
        (q, k, v)[i][:, zero] = 0
    kind = draw.permutation("kind", num_v_heads) % 8
    total = draw.between("decay", (num_v_heads,), 0.3, 2.0)
    total = torch.where(kind == 0, 20 * total, torch.where(kind == 1, total / 1000, total))
    return {"q": q, "k": k, "v": v, "h": h, "g": _cumulative(draw, rows, total / chunk_size, chunk_size)}


def _cumulative(draw: Draw, rows: tuple[int, int], rate: Tensor, chunk_size: int) -> Tensor:
    """Sums from the start of each chunk of decays of `rate` [hv] a token on average: [B, T, hv] float32."""
    batch, tokens = rows
    steps = draw.between("g", (batch, -(-tokens // chunk_size), chunk_size, len(rate)), -2.0, 0.0).mul_(rate)
    return steps.cumsum(2).flatten(1, 2)[:, :tokens].contiguous()


def corners(**sizes: Any) -> dict[str, dict[str, Any]]:
    """The corner cases, each at its own few tokens."""
    return {
        name: {**sizes, "token_count": tokens, "batch_size": batch} for name, (tokens, batch) in CORNER_SIZES.items()
    }


def make_corner(name: str, *, seed: int, device: str, **sizes: Any) -> dict[str, Tensor]:
    made = make_inputs(seed=seed, device=device, **sizes)
    if name == "no_decay":
        made["g"].zero_()
    elif name == "steep":  # e^-g is beyond float32 at the end of a chunk
        rate = torch.full((sizes["num_v_heads"],), 4.0, device=device)
        rows = (sizes["batch_size"], sizes["token_count"])
        made["g"] = _cumulative(Draw(seed, device), rows, rate, sizes["chunk_size"])
    elif name == "zeros":  # nothing before the chunk, and every other token writes nothing
        made["h"].zero_()
        made["k"][:, ::2] = 0
    return made
