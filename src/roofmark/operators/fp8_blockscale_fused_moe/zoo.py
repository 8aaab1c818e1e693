"""Wrong and right answers of `fp8_blockscale_fused_moe`; see `roofmark.operators.zoo`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from roofmark.operators import fp8, routing
from roofmark.operators.fp8_answers import bits
from roofmark.operators.zoo import Candidate

BF16 = torch.bfloat16
BLOCK = 128
Inputs = Mapping[str, Tensor]
Change = Callable[[Tensor], Tensor]


def _same(x: Tensor) -> Tensor:
    return x


def _bf16(x: Tensor) -> Tensor:
    return x.to(BF16).float()


def _in_fp8(x: Tensor, width: int = BLOCK) -> Tensor:
    """x quantised, each `width` columns with a scale, and back."""
    dtype = fp8.kind(x.device)
    groups = x.view(len(x), -1, width)
    scale = groups.abs().amax(-1, keepdim=True).clamp(min=1e-30) / fp8.largest(dtype)
    return (fp8.rounded(groups / scale, dtype) * scale).view(x.shape)


def _toward_zero(x: Tensor) -> Tensor:
    nearest = _in_fp8(x)
    return torch.where(nearest.abs() > x.abs(), nearest * (1 - 2.0**-4), nearest)


def _under_powers(x: Tensor) -> Tensor:
    """x quantised under scales that are powers of two, and back."""
    dtype = fp8.kind(x.device)
    groups = x.view(len(x), -1, BLOCK)
    scale = groups.abs().amax(-1, keepdim=True).clamp(min=1e-30) / fp8.largest(dtype)
    scale = torch.exp2(scale.log2().ceil())
    return (fp8.rounded(groups / scale, dtype) * scale).view(x.shape)


def _wide(codes: Tensor, scales: Tensor) -> Tensor:
    """Codes times scales, one for each block; float32."""
    rows, columns = scales.shape
    return (fp8.wide(codes).view(rows, -1, columns, BLOCK) * scales[:, None, :, None]).view(codes.shape)


@dataclass(frozen=True)
class Way:
    """One way to the answer: what happens to what lies between its steps."""

    halves: Change = _same
    gated: Callable[[Tensor, Tensor], Tensor] = lambda gate, up: functional.silu(gate) * up
    inner: Change = _same
    share: Change = _same
    sums: Change = _same

    def __call__(self, i: Inputs, s: dict[str, Any]) -> Tensor:
        out = torch.zeros(i["hidden"].shape, device=i["hidden"].device)
        for expert, rows, places in routing.by_expert(i["topk_ids"]):
            x = _wide(i["hidden"][rows], i["hidden_scales"][rows])
            halves = self.halves(x @ _wide(i["w1"][expert], i["w1_scales"][expert]).T)
            inner = self.inner(self.gated(*halves.chunk(2, dim=-1)))
            share = inner @ _wide(i["w2"][expert], i["w2_scales"][expert]).T
            out[rows] = self.sums(out[rows] + self.share(share * i["topk_weights"][rows, places].unsqueeze(-1)))
        return out.to(BF16)


RIGHTLY = Way()


def _with(**changes: Change) -> Candidate:
    """Other inputs."""
    return lambda i, s: RIGHTLY({**i, **{name: change(i[name]) for name, change in changes.items()}}, s)


def _routed(change: Callable[[Tensor, dict[str, Any]], Tensor]) -> Candidate:
    return lambda i, s: RIGHTLY({**i, "topk_ids": change(i["topk_ids"], s)}, s)


def _without(places: slice) -> Change:
    """A tensor whose last dimension is zero at these places."""

    def cut(x: Tensor) -> Tensor:
        x = x.clone()
        x.view(torch.uint8 if x.dtype.itemsize == 1 else x.dtype)[..., places] = 0
        return x

    return cut


def _mean(*dims: int) -> Change:
    return lambda scales: scales.mean(dims, keepdim=True).expand_as(scales)


def _first(x: Tensor) -> Tensor:
    return x[..., :1].expand_as(x)


def _weight_inside(i: Inputs, s: dict[str, Any]) -> Tensor:
    """The weight multiplies the hidden state instead of what the expert makes of it."""
    out = torch.zeros(i["hidden"].shape, device=i["hidden"].device)
    for expert, rows, places in routing.by_expert(i["topk_ids"]):
        x = _wide(i["hidden"][rows], i["hidden_scales"][rows]) * i["topk_weights"][rows, places].unsqueeze(-1)
        gate, up = (x @ _wide(i["w1"][expert], i["w1_scales"][expert]).T).chunk(2, dim=-1)
        out[rows] += (functional.silu(gate) * up) @ _wide(i["w2"][expert], i["w2_scales"][expert]).T
    return out.to(BF16)


def _gelu(gate: Tensor, up: Tensor) -> Tensor:
    return functional.gelu(gate) * up


def _magnitudes(codes: Tensor) -> Tensor:
    return (codes.view(torch.uint8) & 0x7F).view(codes.dtype)


ROWS = ("hidden", "hidden_scales", "topk_weights", "topk_ids")
WRONG: dict[str, Candidate] = {
    "first experts for all": _routed(lambda ids, s: ids[:, :1] * 0 + torch.arange(s["top_k"], dtype=torch.int32)),
    "next expert": _routed(lambda ids, s: (ids + 1) % s["num_experts"]),
    "ids of another token": lambda i, s: (
        RIGHTLY({**i, "topk_ids": i["topk_ids"].roll(1, 0)}, s) if len(i["hidden"]) > 1 else None
    ),
    "ids sorted, weights not": _routed(lambda ids, s: ids.sort(dim=-1, descending=True).values),
    "first choice alone": _with(topk_weights=_without(slice(1, None))),
    "last choice left out": _with(topk_weights=_without(slice(-1, None))),
    "no weights": _with(topk_weights=torch.ones_like),
    "even weights": _with(topk_weights=_mean(-1)),
    "weights normalised": _with(topk_weights=lambda weights: weights / weights.sum(-1, keepdim=True)),
    "weights before the expert": _weight_inside,
    "no scales of the hidden state": _with(hidden_scales=_mean(0, 1)),
    "one scale for a token": _with(hidden_scales=_mean(1)),
    "token's first scale": _with(hidden_scales=_first),
    "one scale for w1": _with(w1_scales=_mean(1, 2)),
    "w1's first scale of a row": _with(w1_scales=_first),
    "gate's scales for up": _with(w1_scales=lambda x: torch.cat([x.chunk(2, 1)[0]] * 2, 1)),
    "one scale for w2": _with(w2_scales=_mean(1, 2)),
    "w2's first scale of a row": _with(w2_scales=_first),
    "w2's scales of the next block": _with(w2_scales=lambda x: x.roll(1, 1)),
    "first expert's scales": _with(w1_scales=lambda x: x[:1].expand_as(x), w2_scales=lambda x: x[:1].expand_as(x)),
    "sizes of w2 alone": _with(w2=_magnitudes),
    "sizes of the hidden state alone": _with(hidden=_magnitudes),
    "no activation": Way(gated=lambda gate, up: gate * up),
    "up alone": Way(gated=lambda gate, up: up),
    "gate alone": Way(gated=lambda gate, up: functional.silu(gate)),
    "halves swapped": Way(gated=lambda gate, up: functional.silu(up) * gate),
    "gate for up": Way(gated=lambda gate, up: functional.silu(gate) * gate),
    "sigmoid": Way(gated=lambda gate, up: torch.sigmoid(gate) * up),
    # one token may show too little of it
    "gelu": lambda i, s: Way(gated=_gelu)(i, s) if len(i["hidden"]) > 1 else None,
    "relu": Way(gated=lambda gate, up: gate.relu() * up),
    "interleaved halves": Way(halves=lambda x: torch.cat([x[:, ::2], x[:, 1::2]], 1)),
    "mean for the inner values": Way(inner=lambda x: x.mean(-1, keepdim=True).expand_as(x)),
    "half of the hidden state": lambda i, s: _with(hidden=_without(slice(s["hidden_size"] // 2, None)))(i, s),
    "last block of the hidden state": _with(hidden=_without(slice(-BLOCK, None))),
    "last block of the inner values": Way(inner=_without(slice(-BLOCK, None))),
    "halves of 2 bits": Way(halves=lambda x: bits(x, 2)),
    "inner values of 2 bits": Way(inner=lambda x: bits(x, 2)),
    "inner values cut to fp8": Way(inner=_toward_zero),
    "inner values under no scale": Way(inner=lambda x: fp8.rounded(x / 256, fp8.kind(x.device)) * 256),
    "sums in fp8": Way(sums=lambda x: bits(x, 4)),
    "output in fp8": lambda i, s: bits(RIGHTLY(i, s).float(), 4).to(BF16),
}
RIGHT: dict[str, Candidate] = {
    "inner values in fp8": Way(_bf16, lambda gate, up: _bf16(_bf16(functional.silu(gate)) * up), _in_fp8, _bf16),
    "inner values in fp8 under powers of two": Way(inner=_under_powers),
    "one scale for a token's inner values": Way(inner=lambda x: _in_fp8(x, x.shape[1])),
    "inner values in bf16": Way(inner=_bf16),
    "by tanh": Way(gated=lambda gate, up: gate * (0.5 * torch.tanh(0.5 * gate) + 0.5) * up),
}


def _exponentials(gate: Tensor, up: Tensor) -> Tensor:
    return gate * gate.exp() / (1 + gate.exp()) * up


def _place(ids: Tensor) -> Tensor:
    """How many tokens before it go to the same expert."""
    place = torch.zeros_like(ids)
    for _, rows, places in routing.by_expert(ids):
        place[rows, places] = torch.arange(len(rows), dtype=torch.int32, device=ids.device)
    return place


WRONG_ON_CORNERS: dict[tuple[str, str], Candidate] = {
    ("large", "exponential overflows"): Way(gated=_exponentials),
    ("zeros", "0 / 0"): Way(inner=lambda x: x / x.abs().amax(-1, keepdim=True) * x.abs().amax(-1, keepdim=True)),
    ("subnormal", "small codes flushed"): _with(
        hidden=lambda x: torch.where((x.view(torch.uint8) & 0x78) == 0, 0, x.view(torch.uint8)).view(x.dtype)
    ),
    ("few_experts", "experts without tokens not counted"): _routed(
        lambda ids, s: (torch.searchsorted(torch.unique(ids.long()), ids.long())).to(torch.int32)
    ),
    ("crowded", "a token's place in its expert bounded"): lambda i, s: RIGHTLY(
        {**i, "topk_weights": i["topk_weights"] * (_place(i["topk_ids"]) < 64)}, s
    ),
}
