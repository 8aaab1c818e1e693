"""Wrong answers that must fail, and right ones by another way that must pass.

Each takes the inputs, cut down to some rows, and the sizes; None where it is no mistake at these sizes.
"""

from __future__ import annotations

from collections.abc import Mapping

import torch
from operator_check import Candidate, Sizes
from operator_zoo_attention import (
    ATTENTION_FORWARD_RIGHT,
    ATTENTION_FORWARD_WRONG,
    ATTENTION_WRONG_ON_CORNERS,
    BF16,
    PAGED_ATTENTION_DECODE_RIGHT,
    PAGED_ATTENTION_DECODE_WRONG,
    Inputs,
    fp8,
)
from operator_zoo_special import SPECIAL, masked_as_zero, no_maximum
from torch import Tensor
from torch.nn.functional import gelu, silu

# ---- rms_norm ----------------------------------------------------------------------------------


def _rms(i: Inputs, mean_square: Tensor, eps: float, weight: Tensor | float | None = None) -> Tensor:
    scale = torch.rsqrt(mean_square + eps)
    return (i["x"].float() * scale * (i["weight"].float() if weight is None else weight)).to(BF16)


def _mean_square(i: Inputs, part: slice = slice(None)) -> Tensor:
    return i["x"][:, part].float().square().mean(-1, keepdim=True)


def _layer_norm(i: Inputs, s: Sizes) -> Tensor:
    x = i["x"].float()
    x = x - x.mean(-1, keepdim=True)
    return (x * torch.rsqrt(x.square().mean(-1, keepdim=True) + s["eps"]) * i["weight"].float()).to(BF16)


RMS_NORM_WRONG: dict[str, Candidate] = {
    "input": lambda i, s: i["x"],
    "weight alone": lambda i, s: i["weight"].expand_as(i["x"]),
    "no root": lambda i, s: _rms(i, torch.ones(1), 0.0),
    "no weight": lambda i, s: _rms(i, _mean_square(i), s["eps"], 1.0),
    "weight + 1": lambda i, s: _rms(i, _mean_square(i), s["eps"], i["weight"].float() + 1),
    "no eps": lambda i, s: _rms(i, _mean_square(i) + 1e-30, 0.0),
    "eps outside the root": lambda i, s: _rms(i, (_mean_square(i).sqrt() + s["eps"]).square(), 0.0),
    "mean over the batch": lambda i, s: _rms(i, _mean_square(i).mean(), s["eps"]) if len(i["x"]) > 1 else None,
    "expected mean": lambda i, s: _rms(i, torch.tensor(1.0), s["eps"]),
    "half of the row": lambda i, s: _rms(i, _mean_square(i, slice(0, s["hidden_size"] // 2)), s["eps"]),
    "last sixteenth left out": lambda i, s: _rms(
        i, _mean_square(i, slice(0, s["hidden_size"] * 15 // 16)) * 15 / 16, s["eps"]
    ),
    "sum for mean": lambda i, s: _rms(i, _mean_square(i) * s["hidden_size"], s["eps"]),
    "mean of sizes": lambda i, s: _rms(i, i["x"].float().abs().mean(-1, keepdim=True).square(), s["eps"]),
    "layer norm": _layer_norm,
    "x in fp8": lambda i, s: _rms({**i, "x": fp8(i["x"].float() * 64) / 64}, _mean_square(i), s["eps"]),
}


def _rms_rounded(i: Inputs, s: Sizes) -> Tensor:
    return (i["x"].float() / (_mean_square(i) + s["eps"]).sqrt()).to(BF16) * i["weight"]


def _rms_in_parts(i: Inputs, s: Sizes) -> Tensor:
    parts = [p.float().square().sum(-1, keepdim=True) for p in i["x"].split(96, dim=-1)]
    return _rms(i, torch.stack(parts).flip(0).sum(0) * (1 / s["hidden_size"]), s["eps"])


RMS_NORM_RIGHT: dict[str, Candidate] = {"rounds before the weight": _rms_rounded, "sums parts": _rms_in_parts}


# ---- silu_and_mul ------------------------------------------------------------------------------


def _halves(i: Inputs) -> tuple[Tensor, Tensor]:
    gate, up = i["x"].float().chunk(2, dim=-1)
    return gate, up


def _gated(i: Inputs, function: object) -> Tensor:
    gate, up = _halves(i)
    assert callable(function)
    return torch.as_tensor(function(gate, up)).to(BF16)


SILU_AND_MUL_WRONG: dict[str, Candidate] = {
    "gate": lambda i, s: _gated(i, lambda g, u: g),
    "up": lambda i, s: _gated(i, lambda g, u: u),
    "no sigmoid": lambda i, s: _gated(i, lambda g, u: g * u),
    "half for the sigmoid": lambda i, s: _gated(i, lambda g, u: g * u / 2),
    "sigmoid alone": lambda i, s: _gated(i, lambda g, u: torch.sigmoid(g) * u),
    "no up": lambda i, s: _gated(i, lambda g, u: silu(g)),
    "halves swapped": lambda i, s: _gated(i, lambda g, u: silu(u) * g),
    "relu": lambda i, s: _gated(i, lambda g, u: g.relu() * u),
    "gelu": lambda i, s: _gated(i, lambda g, u: gelu(g) * u),
    "other slope": lambda i, s: _gated(i, lambda g, u: g * torch.sigmoid(1.1 * g) * u),
    "interleaved": lambda i, s: (silu(i["x"][:, ::2].float()) * i["x"][:, 1::2].float()).to(BF16),
    "gate in fp8": lambda i, s: _gated(i, lambda g, u: silu(fp8(g)) * u),
}
SILU_AND_MUL_RIGHT: dict[str, Candidate] = {
    "rounds silu": lambda i, s: silu(i["x"].float().chunk(2, -1)[0]).to(BF16) * i["x"].chunk(2, -1)[1],
    "by tanh": lambda i, s: _gated(i, lambda g, u: g * (0.5 * torch.tanh(0.5 * g) + 0.5) * u),
    "divides": lambda i, s: _gated(i, lambda g, u: g * u / (1 + torch.exp2(g * -1.44269504))),
}


# ---- block_scaled_mm ---------------------------------------------------------------------------


def _spread(i: Inputs) -> tuple[Tensor, Tensor]:
    """Both scales, one for each row and block."""
    return i["a_scales"], i["b_scales"].repeat_interleave(128, 0)


def _matmul(i: Inputs, a_scales: Tensor, b_scales: Tensor, blocks: slice = slice(None)) -> Tensor:
    a = i["a"].float().unflatten(1, (-1, 128)) * a_scales.unsqueeze(-1)
    b = i["b"].float().unflatten(1, (-1, 128)) * b_scales.unsqueeze(-1)
    return a[:, blocks].flatten(1) @ b[:, blocks].flatten(1).T


def _mm(i: Inputs, a: Tensor | None = None, b: Tensor | None = None, blocks: slice = slice(None)) -> Tensor:
    a_scales, b_scales = _spread(i)
    return _matmul(i, a_scales if a is None else a, b_scales if b is None else b, blocks).to(BF16)


def _by_block(i: Inputs, kind: torch.dtype) -> Tensor:
    """One product per block of 128, scaled and added up in `kind`."""
    a_scales, b_scales = _spread(i)
    total = torch.zeros(len(i["a"]), len(i["b"]), dtype=kind)
    for g in range(a_scales.shape[1]):
        part = slice(128 * g, 128 * g + 128)
        product = i["a"][:, part].float() @ i["b"][:, part].float().T
        total += (product * a_scales[:, g, None] * b_scales[:, g]).to(kind)
    return total.to(BF16)


def _scaled_in_fp8(i: Inputs, s: Sizes) -> Tensor:
    a, b = _spread(i)
    wide = i["a"].float().unflatten(1, (-1, 128)) * a.unsqueeze(-1)
    return _matmul({**i, "a": fp8(wide.flatten(1))}, torch.ones_like(a), b).to(BF16)


BLOCK_SCALED_MM_WRONG: dict[str, Candidate] = {
    "no scales": lambda i, s: _mm(i, *(torch.ones_like(x) for x in _spread(i))),
    "mean of a's scales": lambda i, s: _mm(i, a=i["a_scales"].mean().expand_as(i["a_scales"])),
    "mean of b's scales": lambda i, s: _mm(i, b=_spread(i)[1].mean().expand(s["n"], s["k"] // 128)),
    "a's first scale": lambda i, s: _mm(i, a=i["a_scales"][:, :1].expand_as(i["a_scales"])),
    "b's first row of scales": lambda i, s: _mm(i, b=i["b_scales"][:1].expand(s["n"], -1)),
    "b's scales transposed": lambda i, s: (
        _mm(i, b=i["b_scales"].T.repeat_interleave(128, 0)) if s["n"] == s["k"] else None
    ),
    "half of k": lambda i, s: _mm(i, blocks=slice(0, s["k"] // 256)),
    "last block left out": lambda i, s: _mm(i, blocks=slice(0, -1)),
    "b not transposed": lambda i, s: _mm({**i, "b": i["b"].float().T}) if s["n"] == s["k"] else None,
    "sizes alone": lambda i, s: _mm({**i, "a": i["a"].float().abs()}),
    "output in fp8": lambda i, s: fp8(_mm(i).float()).to(BF16),
    "sums in bf16": lambda i, s: _by_block(i, BF16),
    "scaled matrix in fp8": _scaled_in_fp8,
}
BLOCK_SCALED_MM_RIGHT: dict[str, Candidate] = {"block by block": lambda i, s: _by_block(i, torch.float32)}


# ---- moe_topk_gating_softmax -------------------------------------------------------------------


def _top(p: Tensor, k: int) -> tuple[Tensor, Tensor]:
    weights, ids = p.topk(k, dim=-1)
    return weights.float(), ids.to(torch.int32)


def _softmax(i: Inputs) -> Tensor:
    return i["gating"].softmax(-1)


def _renormalised(i: Inputs, s: Sizes) -> tuple[Tensor, Tensor]:
    weights, ids = _top(_softmax(i), s["top_k"])
    return weights / weights.sum(-1, keepdim=True), ids


def _changed(i: Inputs, s: Sizes, change: object) -> tuple[Tensor, Tensor]:
    assert callable(change)
    weights, ids = change(*_top(_softmax(i), s["top_k"]))
    return weights, ids


def _first_repeated(w: Tensor, e: Tensor) -> tuple[Tensor, Tensor]:
    return w[:, :1].expand_as(w), e[:, :1].expand_as(e)


def _two_alone(w: Tensor, e: Tensor) -> tuple[Tensor, Tensor]:
    return torch.cat([w[:, :2], torch.zeros_like(w[:, 2:])], 1), e


MOE_TOPK_GATING_SOFTMAX_WRONG: dict[str, Candidate] = {
    "normalised again": _renormalised,
    "logits": lambda i, s: _top(i["gating"], s["top_k"]),
    "sigmoid": lambda i, s: _top(i["gating"].sigmoid(), s["top_k"]),
    "no normaliser": lambda i, s: _top(i["gating"].exp() / s["num_experts"], s["top_k"]),
    "softmax over half": lambda i, s: _top(i["gating"][:, : s["num_experts"] // 2].softmax(-1), s["top_k"]),
    "first experts": lambda i, s: (
        _softmax(i)[:, : s["top_k"]],
        torch.arange(s["top_k"], dtype=torch.int32).expand(len(i["gating"]), -1),
    ),
    "smallest first": lambda i, s: _changed(i, s, lambda w, e: (w.flip(-1), e.flip(-1))),
    "two alone": lambda i, s: _changed(i, s, _two_alone),
    "first one repeated": lambda i, s: _changed(i, s, _first_repeated),
    "ids off by one": lambda i, s: _changed(i, s, lambda w, e: (w, (e + 1) % s["num_experts"])),
    "ids of another row": lambda i, s: _changed(i, s, lambda w, e: (w, e.roll(1, 0))) if len(i["gating"]) > 1 else None,
    "weights in bf16": lambda i, s: _changed(i, s, lambda w, e: (w.to(BF16).float(), e)),
    "logits in bf16": lambda i, s: _top(i["gating"].to(BF16).float().softmax(-1), s["top_k"]),
}


def _one_by_one(i: Inputs, s: Sizes) -> tuple[Tensor, Tensor]:
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


MOE_TOPK_GATING_SOFTMAX_RIGHT: dict[str, Candidate] = {"one by one": _one_by_one}


# Mistakes that inputs of the published kind do not show.
WRONG_ON_CORNERS: dict[tuple[str, str, str], Candidate] = {
    **ATTENTION_WRONG_ON_CORNERS,
    ("moe_topk_gating_softmax", "sharp", "maximum not taken off"): no_maximum,
    ("moe_topk_gating_softmax", "masked", "-inf taken for 0"): masked_as_zero,
}


WRONG: dict[str, dict[str, Candidate]] = {
    "attention_forward": ATTENTION_FORWARD_WRONG | SPECIAL["attention_forward"],
    "block_scaled_mm": BLOCK_SCALED_MM_WRONG | SPECIAL["block_scaled_mm"],
    "moe_topk_gating_softmax": MOE_TOPK_GATING_SOFTMAX_WRONG | SPECIAL["moe_topk_gating_softmax"],
    "paged_attention_decode": PAGED_ATTENTION_DECODE_WRONG | SPECIAL["paged_attention_decode"],
    "rms_norm": RMS_NORM_WRONG | SPECIAL["rms_norm"],
    "silu_and_mul": SILU_AND_MUL_WRONG | SPECIAL["silu_and_mul"],
}
RIGHT: dict[str, dict[str, Candidate]] = {
    "attention_forward": ATTENTION_FORWARD_RIGHT,
    "block_scaled_mm": BLOCK_SCALED_MM_RIGHT,
    "moe_topk_gating_softmax": MOE_TOPK_GATING_SOFTMAX_RIGHT,
    "paged_attention_decode": PAGED_ATTENTION_DECODE_RIGHT,
    "rms_norm": RMS_NORM_RIGHT,
    "silu_and_mul": SILU_AND_MUL_RIGHT,
}


def spoilt(right: Mapping[str, Tensor]) -> dict[str, dict[str, Tensor]]:
    """Wrong answers made from the right rows of any operator."""
    first = next(iter(right))
    made: dict[str, dict[str, Tensor]] = {
        "zeros": {name: torch.zeros_like(value) for name, value in right.items()},
        "ones": {name: torch.ones_like(value) for name, value in right.items()},
        "its mean": {**right, first: torch.full_like(right[first], float(right[first].float().mean()))},
        "2 % too large": {**right, first: right[first] * 1.02},
        "NaN": {**right, first: torch.full_like(right[first], torch.nan)},
        "last row not written": {**right, first: torch.cat([right[first][:-1], right[first][-1:] * 0])},
        "last column not written": {
            **right,
            first: torch.cat([right[first][..., :-1], right[first][..., -1:] * 0], -1),
        },
        "columns shifted": {**right, first: right[first].roll(1, -1)},
    }
    if len(right[first]) > 1:
        made["rows shifted"] = {name: value.roll(1, 0) for name, value in right.items()}
        made["mean of the rows"] = {
            **right,
            first: right[first].float().mean(0, keepdim=True).expand_as(right[first]),
        }
    return made
