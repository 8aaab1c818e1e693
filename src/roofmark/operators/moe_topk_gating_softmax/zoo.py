"""Wrong and right answers of `moe_topk_gating_softmax`; see `roofmark.operators.zoo`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor

from roofmark.operators.zoo import Candidate, significant

BF16 = torch.bfloat16
Inputs = Mapping[str, Tensor]
Pair = tuple[Tensor, Tensor]


def _top(p: Tensor, k: int) -> Pair:
    weights, ids = p.topk(k, dim=-1)
    return weights.float(), ids.to(torch.int32)


def _softmax(i: Inputs) -> Tensor:
    return i["gating"].softmax(-1)


def _renormalised(i: Inputs, s: dict[str, Any]) -> Pair:
    weights, ids = _top(_softmax(i), s["top_k"])
    return weights / weights.sum(-1, keepdim=True), ids


def _changed(change: Callable[[Tensor, Tensor, dict[str, Any]], Pair]) -> Candidate:
    """The right weights and ids, changed."""
    return lambda i, s: change(*_top(_softmax(i), s["top_k"]), s)


def _two_alone(w: Tensor, e: Tensor, s: dict[str, Any]) -> Pair:
    return torch.cat([w[:, :2], torch.zeros_like(w[:, 2:])], 1), e


ROWS = ("gating",)
WRONG: dict[str, Candidate] = {
    "normalised again": _renormalised,
    "logits": lambda i, s: _top(i["gating"], s["top_k"]),
    "sigmoid": lambda i, s: _top(i["gating"].sigmoid(), s["top_k"]),
    "no normaliser": lambda i, s: _top(i["gating"].exp() / s["num_experts"], s["top_k"]),
    "softmax over half": lambda i, s: _top(i["gating"][:, : s["num_experts"] // 2].softmax(-1), s["top_k"]),
    "first experts": lambda i, s: (
        _softmax(i)[:, : s["top_k"]],
        torch.arange(s["top_k"], dtype=torch.int32).expand(len(i["gating"]), -1),
    ),
    "smallest first": _changed(lambda w, e, s: (w.flip(-1), e.flip(-1))),
    "two alone": _changed(_two_alone),
    "first one repeated": _changed(lambda w, e, s: (w[:, :1].expand_as(w), e[:, :1].expand_as(e))),
    "ids off by one": _changed(lambda w, e, s: (w, (e + 1) % s["num_experts"])),
    "ids of another row": _changed(lambda w, e, s: (w, e.roll(1, 0))),
    "weights in bf16": _changed(lambda w, e, s: (w.to(BF16).float(), e)),
    "weights in 12 bits": _changed(lambda w, e, s: (significant(w, 12), e)),
    "logits in bf16": lambda i, s: _top(i["gating"].to(BF16).float().softmax(-1), s["top_k"]),
}


def _one_by_one(i: Inputs, s: dict[str, Any]) -> Pair:
    """Take the largest, strike it out, take the next; the last of equal ones first."""
    left = i["gating"].flip(-1).clone()
    top = left.max(-1, keepdim=True).values
    total = torch.exp2((left - top) * 1.44269504).sum(-1, keepdim=True)
    weights, ids = [], []
    for _ in range(s["top_k"]):
        value, place = left.max(-1, keepdim=True)
        weights.append(torch.exp2((value - top) * 1.44269504) * (1 / total))
        ids.append(s["num_experts"] - 1 - place)
        left.scatter_(1, place, -torch.inf)
    return torch.cat(weights, 1), torch.cat(ids, 1).to(torch.int32)


def _no_maximum(i: Inputs, s: dict[str, Any]) -> Pair | None:
    power = i["gating"].exp()
    p = power / power.sum(-1, keepdim=True)
    return _top(p, s["top_k"]) if p.isnan().any() else None


def _masked_as_zero(i: Inputs, s: dict[str, Any]) -> Pair | None:
    gating = i["gating"]
    shows = gating.isinf() & (gating.amax(-1, keepdim=True) < 8)  # 0 is nothing beside a larger one
    return _top(gating.nan_to_num(neginf=0.0).softmax(-1), s["top_k"]) if shows.any() else None


def _places_by_value(i: Inputs, s: dict[str, Any]) -> Pair | None:
    """Each of several equal experts is taken for the first of them."""
    p = _softmax(i)
    weights = p.topk(s["top_k"], dim=-1).values
    ids = (p.unsqueeze(1) == weights.unsqueeze(-1)).int().argmax(-1)
    return (weights, ids.to(torch.int32)) if (weights[:, 1:] == weights[:, :-1]).any() else None


RIGHT: dict[str, Candidate] = {"one by one": _one_by_one}
WRONG_ON_CORNERS: dict[tuple[str, str], Candidate] = {
    ("sharp", "maximum not taken off"): _no_maximum,
    ("masked", "-inf taken for 0"): _masked_as_zero,
}
SPECIAL: dict[str, Candidate] = {
    "maximum not taken off": _no_maximum,
    "-inf taken for 0": _masked_as_zero,
    "places by value": _places_by_value,
}
TOLERANCES = ("FLOAT32",)
