"""Wrong answers to `fused_qk_rmsnorm` that must fail, and right ones by another way that must pass."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor

from roofmark.operators.zoo import Candidate

Inputs = Mapping[str, Tensor]
Sizes = dict[str, Any]
Scale = Callable[[Tensor], Tensor]

ROWS = ("qkv",)
EPS = 1e-6
FP16 = torch.float16


def _heads(i: Inputs, s: Sizes) -> tuple[Tensor, Tensor, Tensor]:
    """Query, key and value heads [T, h, d] in float32."""
    wide = torch.unflatten(i["qkv"].float(), 1, (-1, s["size_per_head"]))
    q, k, v = torch.split(wide, [s["head_num"], s["kv_head_num"], s["kv_head_num"]], dim=1)
    return q, k, v


def _pack(*heads: Tensor) -> Tensor:
    return torch.cat([x.to(FP16) for x in heads], dim=1).flatten(1)


def _scale(x: Tensor) -> Tensor:
    return torch.rsqrt(x.square().mean(-1, keepdim=True) + EPS)


def _norm(i: Inputs, s: Sizes, scale: Scale = _scale, q_weight: str = "q_weight", k_weight: str = "k_weight") -> Tensor:
    q, k, v = _heads(i, s)
    return _pack(q * scale(q) * i[q_weight].float(), k * scale(k) * i[k_weight].float(), v)


def _by_mean_square(mean_square: Scale) -> Candidate:
    return lambda i, s: _norm(i, s, lambda x: torch.rsqrt(mean_square(x) + EPS))


def _values_too(i: Inputs, s: Sizes) -> Tensor:
    q, k, v = _heads(i, s)
    w, u = i["q_weight"].float(), i["k_weight"].float()
    return _pack(q * _scale(q) * w, k * _scale(k) * u, v * _scale(v) * u)


def _one_part(i: Inputs, s: Sizes, *, keep: int) -> Tensor:
    """One of queries, keys and values handed back as it came (0, 1), or zeroed (2)."""
    q, k, v = _heads(i, s)
    new_q, new_k = q * _scale(q) * i["q_weight"].float(), k * _scale(k) * i["k_weight"].float()
    return _pack(q if keep == 0 else new_q, k if keep == 1 else new_k, v * 0 if keep == 2 else v)


def _last_key_head(i: Inputs, s: Sizes) -> Tensor:
    out = _norm(i, s)
    d, end = s["size_per_head"], (s["head_num"] + s["kv_head_num"]) * s["size_per_head"]
    out[:, end - d : end] = i["qkv"][:, end - d : end]
    return out


def _layer_norm(i: Inputs, s: Sizes) -> Tensor:
    q, k, v = (x - x.mean(-1, keepdim=True) for x in _heads(i, s))
    return _pack(q * _scale(q) * i["q_weight"].float(), k * _scale(k) * i["k_weight"].float(), v)


def _weights(i: Inputs, change: Callable[[Tensor], Tensor]) -> Inputs:
    return {**i, "q_weight": change(i["q_weight"]), "k_weight": change(i["k_weight"])}


def _rounds_before_the_weight(i: Inputs, s: Sizes) -> Tensor:
    q, k, v = _heads(i, s)
    return _pack((q * _scale(q)).to(FP16) * i["q_weight"], (k * _scale(k)).to(FP16) * i["k_weight"], v)


def _in_bf16(i: Inputs, s: Sizes) -> Tensor:
    rounded = {**i, "qkv": i["qkv"].to(torch.bfloat16)}
    width = s["kv_head_num"] * s["size_per_head"]
    return torch.cat([_norm(rounded, s)[:, :-width], i["qkv"][:, -width:]], dim=1)


WRONG: dict[str, Candidate] = {
    "no weight": lambda i, s: _norm(_weights(i, torch.ones_like), s),
    "weight + 1": lambda i, s: _norm(_weights(i, lambda w: w + 1), s),
    "weights swapped": lambda i, s: _norm(i, s, q_weight="k_weight", k_weight="q_weight"),
    "queries' weight for keys": lambda i, s: _norm(i, s, k_weight="q_weight"),
    "keys' weight for queries": lambda i, s: _norm(i, s, q_weight="k_weight"),
    "no root": lambda i, s: _norm(i, s, lambda x: torch.ones_like(x[..., :1])),
    "no eps": lambda i, s: _norm(i, s, lambda x: torch.rsqrt(x.square().mean(-1, keepdim=True) + 1e-30)),
    "eps outside the root": lambda i, s: _norm(i, s, lambda x: 1 / (x.square().mean(-1, keepdim=True).sqrt() + EPS)),
    "eps of 1e-5": lambda i, s: _norm(i, s, lambda x: torch.rsqrt(x.square().mean(-1, keepdim=True) + 1e-5)),
    "mean over all heads": _by_mean_square(lambda x: x.square().mean((-1, -2), keepdim=True)),
    "expected mean": _by_mean_square(lambda x: torch.ones_like(x[..., :1])),
    "half of the head": _by_mean_square(lambda x: x[..., : x.shape[-1] // 2].square().mean(-1, keepdim=True)),
    "last element left out": _by_mean_square(lambda x: x[..., :-1].square().sum(-1, keepdim=True) / x.shape[-1]),
    "sum for mean": _by_mean_square(lambda x: x.square().sum(-1, keepdim=True)),
    "mean of sizes": _by_mean_square(lambda x: x.abs().mean(-1, keepdim=True).square()),
    "layer norm": _layer_norm,
    "values normalised too": _values_too,
    "queries left": lambda i, s: _one_part(i, s, keep=0),
    "keys left": lambda i, s: _one_part(i, s, keep=1),
    "values dropped": lambda i, s: _one_part(i, s, keep=2),
    "last key head left": _last_key_head,
    "squares in fp16": _by_mean_square(lambda x: x.to(FP16).square().mean(-1, keepdim=True).float()),
    "rounds before the weight": _rounds_before_the_weight,
    "queries and keys in bf16": _in_bf16,
}


def _sums_parts(x: Tensor) -> Tensor:
    parts = [p.square().sum(-1, keepdim=True) for p in torch.split(x, 12, dim=-1)]
    return 1 / torch.sqrt(torch.stack(parts).flip(0).sum(0) * (1 / x.shape[-1]) + EPS)


def _float64(i: Inputs, s: Sizes) -> Tensor:
    q, k, v = (x.double() for x in _heads(i, s))
    return _pack(q * _scale(q) * i["q_weight"].double(), k * _scale(k) * i["k_weight"].double(), v)


RIGHT: dict[str, Candidate] = {
    "sums parts": lambda i, s: _norm(i, s, _sums_parts),
    "float64": _float64,
    "weight first": lambda i, s: _pack(
        *(x * (i[w].float() * _scale(x)) for x, w in zip(_heads(i, s), ("q_weight", "k_weight"), strict=False)),
        _heads(i, s)[2],
    ),
}


def _scaled_by_the_largest(i: Inputs, s: Sizes) -> Tensor:
    def scale(x: Tensor) -> Tensor:
        largest = x.abs().amax(-1, keepdim=True)
        return 1 / (largest * torch.sqrt((x / largest).square().mean(-1, keepdim=True)))

    return _norm(i, s, scale)


WRONG_ON_CORNERS: dict[tuple[str, str], Candidate] = {
    ("zero_heads", "divides by the largest, without eps"): _scaled_by_the_largest,
    ("below_eps", "no eps"): lambda i, s: _norm(i, s, lambda x: torch.rsqrt(x.square().mean(-1, keepdim=True) + 1e-30)),
    ("large", "squares in fp16"): _by_mean_square(lambda x: x.to(FP16).square().mean(-1, keepdim=True).float()),
}
