"""Inputs of `mla_decode_attention`: each head's softmax rests on some 4 to 64 tokens anywhere in its sequence."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from roofmark.operators.draw import Draw
from roofmark.operators.spans import Contexts, contexts
from roofmark.records import OutputSpec

# The spread of the part of a latent that no value holds; the first 512 elements have one of 1 about their mean.
ROPE = 4.0
# Of 256 heads of a sequence, this many are zero, and as many are this much larger.
ODD, SHARP = 8, 32.0
# What the first and the last token weigh, of all tokens of a sequence.
SHARE = 0.05

CORNER_LENGTHS: dict[str, list[int]] = {
    "one_token": [1],
    "ragged": [64, 1, 17, 33],
    "empty": [0, 47, 0],
    "tail": [43, 43],
    "long": [1037],
    "sharp": [40, 23],
    "zeros": [31, 5],
    "equal_keys": [31, 64],
}


def outputs(*, batch_size: int, nhead: int, kv_lora_rank: int, **_: Any) -> tuple[OutputSpec, ...]:
    return (OutputSpec(name="out", shape=(batch_size, nhead, kv_lora_rank), dtype="bfloat16"),)


def make_inputs(
    *,
    batch_size: int,
    ctx_len: Contexts,
    nhead: int,
    kv_lora_rank: int,
    qk_rope_head_dim: int,
    seed: int,
    device: str,
) -> dict[str, Tensor]:
    """`q`, `kv_buffer` and `seq_lens`; every sequence has the tokens that `ctx_len` says.

    The value part of a latent has a mean of its own for every token; it and the rest move the logits about as much.
    A sequence's first and last token count in every head. Some heads are zero: there all tokens count alike; some
    are so large that exp overflows unless the maximum is taken off first.
    """
    draw = Draw(seed, device)
    key = kv_lora_rank + qk_rope_head_dim
    lens = torch.tensor(contexts(batch_size, ctx_len), device=device)
    rows = int(lens.sum())
    kv = draw.uniform("kv", (rows, 1, key), torch.bfloat16)
    kv[..., :kv_lora_rank] += draw.between("mean", (rows, 1, 1), 0.0, 2.0).to(torch.bfloat16)
    kv[..., kv_lora_rank:] *= ROPE

    variance = 1.4 * (lens / 16).clamp(min=1.5).log()
    # the logit of a token that takes SHARE of its sequence, before the logits get their deviation
    logit = (lens.clamp(min=1).log() + variance / 2 + math.log(SHARE)) / variance.sqrt()
    q = draw.uniform("q", (batch_size, nhead, key), torch.bfloat16, 1.6)
    ends = lens.cumsum(0)
    for place in (ends - lens, ends - 1):
        near = kv[place.clamp(0, rows - 1)]
        missing = logit.view(-1, 1, 1) * math.sqrt(key) - (q * near).sum(-1, keepdim=True)
        missing /= qk_rope_head_dim * ROPE**2 / 3
        q[..., kv_lora_rank:].addcmul_(missing.to(q.dtype), near[..., kv_lora_rank:])
    kind = draw.bits("odd", (batch_size, nhead, 1), torch.uint8)
    factor = (kind >= ODD).to(q.dtype).masked_fill_(kind >= 256 - ODD, SHARP)
    q.mul_(factor.mul_(variance.sqrt().to(q.dtype).view(-1, 1, 1)))
    return {"q": q, "kv_buffer": kv, "seq_lens": lens.to(torch.int32)}


def corners(**sizes: Any) -> dict[str, dict[str, Any]]:
    """The corner cases, each with its own few short sequences."""
    return {name: {**sizes, "batch_size": len(lengths), "ctx_len": lengths} for name, lengths in CORNER_LENGTHS.items()}


def make_corner(name: str, *, seed: int, device: str, **sizes: Any) -> dict[str, Tensor]:
    made = make_inputs(seed=seed, device=device, **sizes)
    if name == "sharp":  # logits far outside what exp can hold without the maximum taken off
        made["q"].clamp_(-4.0, 4.0).mul_(SHARP)
    elif name == "zeros":
        made["q"].zero_()
        made["kv_buffer"][::2].zero_()
    elif name == "equal_keys":  # queries that see a part in which all tokens are equal: the mean of the values
        rank = sizes["kv_lora_rank"]
        made["q"][..., :rank] = 0.0
        made["kv_buffer"][..., rank:] = made["kv_buffer"][:1, :, rank:].clone()
    return made
