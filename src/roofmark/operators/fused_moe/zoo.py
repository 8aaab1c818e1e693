"""Wrong and right answers of `fused_moe`; see `roofmark.operators.zoo`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from roofmark.operators import routing
from roofmark.operators.fp8_answers import bits
from roofmark.operators.zoo import Candidate

BF16 = torch.bfloat16
Inputs = Mapping[str, Tensor]
Change = Callable[[Tensor], Tensor]


def _same(x: Tensor) -> Tensor:
    return x


def _bf16(x: Tensor) -> Tensor:
    return x.to(BF16).float()


def _bits(count: int) -> Change:
    return lambda x: bits(x, count)


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
            halves = self.halves(i["hidden"][rows].float() @ i["w1"][expert].float().T)
            inner = self.inner(self.gated(*halves.chunk(2, dim=-1)))
            share = inner @ i["w2"][expert].float().T * i["topk_weights"][rows, places].unsqueeze(-1)
            out[rows] = self.sums(out[rows] + self.share(share))
        return out.to(BF16)


RIGHTLY = Way()


def _routed(change: Callable[[Tensor, dict[str, Any]], Tensor]) -> Candidate:
    return lambda i, s: RIGHTLY({**i, "topk_ids": change(i["topk_ids"], s)}, s)


def _weighed(change: Change) -> Candidate:
    return lambda i, s: RIGHTLY({**i, "topk_weights": change(i["topk_weights"])}, s)


def _weights(**changes: Change) -> Candidate:
    """Other hidden states or weights of the experts."""
    return lambda i, s: RIGHTLY({**i, **{name: change(i[name]) for name, change in changes.items()}}, s)


def _without(places: slice) -> Change:
    """A tensor whose last dimension is zero at these places."""

    def cut(x: Tensor) -> Tensor:
        x = x.clone()
        x[..., places] = 0
        return x

    return cut


def _weight_inside(i: Inputs, s: dict[str, Any]) -> Tensor:
    """The weight multiplies the hidden state instead of what the expert makes of it."""
    out = torch.zeros(i["hidden"].shape, device=i["hidden"].device)
    for expert, rows, places in routing.by_expert(i["topk_ids"]):
        x = i["hidden"][rows].float() * i["topk_weights"][rows, places].unsqueeze(-1)
        gate, up = (x @ i["w1"][expert].float().T).chunk(2, dim=-1)
        out[rows] += (functional.silu(gate) * up) @ i["w2"][expert].float().T
    return out.to(BF16)


ROWS = ("hidden", "topk_weights", "topk_ids")
WRONG: dict[str, Candidate] = {
    "first expert for all": _routed(lambda ids, s: ids[:, :1] * 0 + torch.arange(s["top_k"], dtype=torch.int32)),
    "next expert": _routed(lambda ids, s: (ids + 1) % s["num_experts"]),
    "ids of another token": lambda i, s: (
        RIGHTLY({**i, "topk_ids": i["topk_ids"].roll(1, 0)}, s) if len(i["hidden"]) > 1 else None
    ),
    "ids sorted, weights not": _routed(lambda ids, s: ids.sort(dim=-1, descending=True).values),
    "first choice alone": _weighed(_without(slice(1, None))),
    "last choice left out": _weighed(_without(slice(-1, None))),
    "last expert left out": lambda i, s: RIGHTLY(
        {**i, "topk_weights": torch.where(i["topk_ids"] == i["topk_ids"][-1, -1], 0.0, i["topk_weights"])}, s
    ),
    "no weights": _weighed(torch.ones_like),
    "even weights": _weighed(lambda weights: weights.mean(-1, keepdim=True).expand_as(weights)),
    "weights normalised": _weighed(lambda weights: weights / weights.sum(-1, keepdim=True)),
    "weights squared": _weighed(lambda weights: weights.square()),
    "weights before the expert": _weight_inside,
    "softmax of the weights": _weighed(lambda weights: weights.softmax(-1)),
    "no activation": Way(gated=lambda gate, up: gate * up),
    "up alone": Way(gated=lambda gate, up: up),
    "gate alone": Way(gated=lambda gate, up: functional.silu(gate)),
    "halves swapped": Way(gated=lambda gate, up: functional.silu(up) * gate),
    "sigmoid": Way(gated=lambda gate, up: torch.sigmoid(gate) * up),
    "gelu": Way(gated=lambda gate, up: functional.gelu(gate) * up),
    "relu": Way(gated=lambda gate, up: gate.relu() * up),
    "half for the sigmoid": Way(gated=lambda gate, up: gate * up / 2),
    "interleaved halves": Way(halves=lambda x: torch.cat([x[:, ::2], x[:, 1::2]], 1)),
    "mean for the inner values": Way(inner=lambda x: x.mean(-1, keepdim=True).expand_as(x)),
    "half of the hidden state": lambda i, s: _weights(hidden=_without(slice(s["hidden_size"] // 2, None)))(i, s),
    "last tile of the hidden state": _weights(hidden=_without(slice(-32, None))),
    "last tile of the inner values": Way(inner=_without(slice(-32, None))),
    "hidden state in fp8": _weights(hidden=_bits(4)),
    "w1 in fp8": _weights(w1=_bits(4)),
    "w2 in fp8": _weights(w2=_bits(4)),
    "inner values in fp8": Way(inner=_bits(4)),
    "weights of 3 bits": _weighed(_bits(3)),
    "halves and inner values of 5 bits": Way(halves=_bits(5), inner=_bits(5)),
    "sums in fp8": Way(sums=_bits(4)),
}
RIGHT: dict[str, Candidate] = {
    "as between two kernels": Way(_bf16, lambda gate, up: _bf16(functional.silu(gate)) * up, _bf16, _bf16),
    "inner values in bf16": Way(inner=_bf16),
    "shares in bf16": Way(share=_bf16),
    "by tanh": Way(gated=lambda gate, up: gate * (0.5 * torch.tanh(0.5 * gate) + 0.5) * up),
    "experts from the last": lambda i, s: RIGHTLY(
        {
            **i,
            "topk_ids": s["num_experts"] - 1 - i["topk_ids"],
            "w1": i["w1"].flip(0),
            "w2": i["w2"].flip(0),
        },
        s,
    ),
}


def _exponentials(gate: Tensor, up: Tensor) -> Tensor:
    return gate * gate.exp() / (1 + gate.exp()) * up


WRONG_ON_CORNERS: dict[tuple[str, str], Candidate] = {
    ("large", "exponential overflows"): Way(gated=_exponentials),
    ("zeros", "normed"): lambda i, s: RIGHTLY(
        {**i, "hidden": (i["hidden"] / i["hidden"].abs().amax(-1, keepdim=True)).to(BF16) * i["hidden"].abs().amax()}, s
    ),
    ("few_experts", "experts without tokens counted"): _routed(
        lambda ids, s: (torch.searchsorted(torch.unique(ids.long()), ids.long()) % s["num_experts"]).to(torch.int32)
    ),
    ("crowded", "a token's place in its expert bounded"): lambda i, s: RIGHTLY(
        {**i, "topk_weights": i["topk_weights"] * (_place(i["topk_ids"]) < 64)}, s
    ),
}


def _place(ids: Tensor) -> Tensor:
    """How many tokens before it go to the same expert."""
    place = torch.zeros_like(ids)
    for _, rows, places in routing.by_expert(ids):
        place[rows, places] = torch.arange(len(rows), dtype=torch.int32, device=ids.device)
    return place
