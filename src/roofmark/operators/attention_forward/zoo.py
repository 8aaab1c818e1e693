"""Wrong and right answers of `attention_forward`; see `roofmark.operators.zoo`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from roofmark.operators.zoo import Candidate, fp8

BF16 = torch.bfloat16
Inputs = Mapping[str, Tensor]


def _heads(i: Inputs) -> tuple[Tensor, Tensor, Tensor]:
    q, k, v = (i[name].float().transpose(0, 1) for name in ("q", "k", "v"))
    return q, k, v


def _logits(i: Inputs) -> Tensor:
    """Of every row with every key, as if there were one sequence."""
    q, k, _ = _heads(i)
    logits: Tensor = q @ k.transpose(-1, -2) * q.shape[-1] ** -0.5
    return logits


def _weigh(p: Tensor, i: Inputs) -> Tensor:
    return (p @ _heads(i)[2]).transpose(0, 1).to(BF16)


def _keys(i: Inputs, part: slice) -> Tensor | None:
    """Attention over some of the keys; None where those are all, or none."""
    if len(i["k"][part]) in (0, len(i["k"])):
        return None
    few = {**i, "k": i["k"][part], "v": i["v"][part]}
    return _weigh(_logits(few).softmax(-1), few)


def _one_key(i: Inputs, s: dict[str, Any]) -> Tensor:
    logits = _logits(i)
    return _weigh(torch.zeros_like(logits).scatter(-1, logits.argmax(-1, keepdim=True), 1.0), i)


def _in_fp8(i: Inputs, *names: str) -> Inputs:
    return {**i, **{name: fp8(i[name].float()) for name in names}}


ROWS = ("q",)
WRONG: dict[str, Candidate] = {
    "mean of v": lambda i, s: i["v"].float().mean(0, keepdim=True).expand_as(i["q"]).to(BF16),
    "no scale": lambda i, s: _weigh((_logits(i) * s["head_dim"] ** 0.5).softmax(-1), i),
    "scale 1 / d": lambda i, s: _weigh((_logits(i) * s["head_dim"] ** -0.5).softmax(-1), i),
    "first 64 keys": lambda i, s: _keys(i, slice(0, 64)),
    "last 64 keys": lambda i, s: _keys(i, slice(-64, None)),
    "last key left out": lambda i, s: _keys(i, slice(0, -1)),
    "last tile left out": lambda i, s: _keys(i, slice(0, len(i["k"]) // 64 * 64)),
    "one tile left out": lambda i, s: _keys(i, slice(64, None)),
    "largest key alone": _one_key,
    "no normaliser": lambda i, s: _weigh(_logits(i).exp() / len(i["k"]), i),
    "next head's keys": lambda i, s: _weigh(_logits({**i, "k": i["k"].roll(1, 1)}).softmax(-1), i),
    "next head's values": lambda i, s: _weigh(_logits(i).softmax(-1), {**i, "v": i["v"].roll(1, 1)}),
    "p in fp8": lambda i, s: _weigh(fp8(_logits(i).softmax(-1) * 256) / 256, i),
    "q and k in fp8": lambda i, s: _weigh(_logits(_in_fp8(i, "q", "k")).softmax(-1), i),
    "v in fp8": lambda i, s: _weigh(_logits(i).softmax(-1), _in_fp8(i, "v")),
}


def _online(i: Inputs, s: dict[str, Any], tile: int, kind: torch.dtype) -> Tensor | None:
    """Softmax and product tile by tile, in base 2, with p rounded to `kind`, as fused kernels do; one sequence."""
    if len(s["seq_lens"]) > 1:
        return None
    v = _heads(i)[2]
    logits = _logits(i)
    top = torch.full_like(logits[..., :1], -torch.inf)
    total, out = torch.zeros_like(top), torch.zeros(*logits.shape[:-1], v.shape[-1])
    for part, values in zip(torch.split(logits, tile, -1), torch.split(v, tile, -2), strict=True):
        new = torch.maximum(top, part.max(-1, keepdim=True).values)
        p = torch.exp2((part - new) * 1.4426950408889634)
        shrink = torch.exp2((top - new) * 1.4426950408889634)
        total = total * shrink + p.sum(-1, keepdim=True)
        out = out * shrink + p.to(kind).float() @ values
        top = new
    return (out / total).to(BF16).transpose(0, 1).contiguous()


def _masked(i: Inputs, s: dict[str, Any], kind: torch.dtype) -> Tensor | None:
    """All keys at once, p rounded to `kind`; one sequence."""
    return _weigh(_logits(i).softmax(-1).to(kind).float(), i) if len(s["seq_lens"]) == 1 else None


RIGHT: dict[str, Candidate] = {
    "online": lambda i, s: _online(i, s, 64, BF16),
    "online, p in float32": lambda i, s: _online(i, s, 128, torch.float32),
    "float32": lambda i, s: _masked(i, s, torch.float32),
    "p in bf16": lambda i, s: _masked(i, s, BF16),
}


def _bounds_ignored(i: Inputs, s: dict[str, Any]) -> Tensor | None:
    """None for a single key, which has nothing beside it."""
    return _weigh(_logits(i).softmax(-1), i) if len(i["k"]) > 1 else None


def _without_maximum(i: Inputs, s: dict[str, Any]) -> Tensor | None:
    p = _logits(i).exp()
    p = p / p.sum(-1, keepdim=True)
    return _weigh(p, i) if p.isnan().any() else None


def _zero_queries_skipped(i: Inputs, s: dict[str, Any]) -> Tensor | None:
    zero = (i["q"] == 0).all(-1, keepdim=True)
    return _weigh(_logits(i).softmax(-1), i).masked_fill(zero, 0.0) if zero.any() else None


WRONG_ON_CORNERS: dict[tuple[str, str], Candidate] = {
    ("ragged", "bounds ignored"): _bounds_ignored,
    ("empty_sequences", "bounds ignored"): _bounds_ignored,
    ("ragged_full", "bounds ignored"): _bounds_ignored,
    ("sharp", "maximum not taken off"): _without_maximum,
}
SPECIAL: dict[str, Candidate] = {
    "maximum not taken off": _without_maximum,
    "zero queries skipped": _zero_queries_skipped,
}
