"""Wrong and right answers of `causal_conv1d`; see `roofmark.operators.zoo`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional
from torch.nn.functional import silu

from roofmark.operators.zoo import Candidate, fp8

BF16 = torch.bfloat16
TILE = 64
Inputs = Mapping[str, Tensor]
Sizes = dict[str, Any]


def _seen(i: Inputs) -> Tensor:
    """State and x, one after the other: [D, 3 + T] bfloat16."""
    return torch.cat([i["conv_states"][0], i["x"]], dim=1)


def _sum(
    i: Inputs, seen: Tensor | None = None, weight: Tensor | None = None, kind: torch.dtype = torch.float32
) -> Tensor:
    """The sum before silu."""
    seen = (_seen(i) if seen is None else seen).to(kind)
    weight = (i["weight"] if weight is None else weight).to(kind)
    tokens = seen.shape[1] - weight.shape[1] + 1
    total = i["bias"].to(kind).unsqueeze(1).repeat(1, tokens)
    for tap in range(weight.shape[1]):
        total.addcmul_(seen[:, tap : tap + tokens], weight[:, tap : tap + 1])
    return total


def _state(i: Inputs) -> Tensor:
    return _seen(i)[:, i["x"].shape[1] :].unsqueeze(0)


def _both(i: Inputs, total: Tensor) -> tuple[Tensor, Tensor]:
    """silu of a sum, and the right state."""
    return silu(total).to(BF16), _state(i)


def _without_tap(i: Inputs, tap: int) -> tuple[Tensor, Tensor]:
    weight = i["weight"].clone()
    weight[:, tap] = 0
    return _both(i, _sum(i, weight=weight))


def _in_tiles(i: Inputs, s: Sizes, before: Tensor) -> tuple[Tensor, Tensor] | None:
    """Each tile of tokens begins with `before`, not with the tokens before it."""
    if s["token_count"] <= TILE:
        return None
    parts = [_sum(i, torch.cat([before, part], dim=1)) for part in torch.split(i["x"], TILE, dim=1)]
    return _both(i, torch.cat(parts, dim=1))


def _last_tile_left_out(i: Inputs, s: Sizes) -> tuple[Tensor, Tensor] | None:
    out, state = _both(i, _sum(i))
    rest = s["token_count"] // TILE * TILE
    if rest in (0, s["token_count"]):
        return None
    out[:, rest:] = 0
    return out, state


def _late(i: Inputs, s: Sizes) -> tuple[Tensor, Tensor]:
    """Every output one token late: the newest tap meets the token before."""
    seen = _seen(i)
    return _both(i, _sum(i, torch.cat([seen[:, :1] * 0, seen[:, :-1]], dim=1)))


def _all_in_bf16(i: Inputs, s: Sizes) -> tuple[Tensor, Tensor]:
    """Products and sums rounded to bfloat16."""
    seen, tokens = _seen(i), s["token_count"]
    total = i["bias"].unsqueeze(1).expand(-1, tokens)
    for tap in range(s["width"]):
        total = total + seen[:, tap : tap + tokens] * i["weight"][:, tap : tap + 1]
    return _both(i, total.float())


def _with_state(i: Inputs, state: Tensor) -> tuple[Tensor, Tensor]:
    return silu(_sum(i)).to(BF16), state


def _padded_state(i: Inputs, s: Sizes) -> tuple[Tensor, Tensor] | None:
    """A new state of x alone, zeros before it."""
    if s["token_count"] >= s["width"] - 1:
        return None
    state = functional.pad(i["x"], (s["width"] - 1 - s["token_count"], 0))
    return _with_state(i, state.unsqueeze(0))


ROWS = ()
WRONG: dict[str, Candidate] = {
    "silu of the bias": lambda i, s: _both(i, _sum(i) * 0 + i["bias"].float().unsqueeze(1)),
    "no bias": lambda i, s: _both(i, _sum(i) - i["bias"].float().unsqueeze(1)),
    "first tap left out": lambda i, s: _without_tap(i, 0),
    "second tap left out": lambda i, s: _without_tap(i, 1),
    "third tap left out": lambda i, s: _without_tap(i, 2),
    "last tap left out": lambda i, s: _without_tap(i, 3),
    "taps the other way round": lambda i, s: _both(i, _sum(i, weight=i["weight"].flip(1))),
    "next channel's taps": lambda i, s: _both(i, _sum(i, weight=i["weight"].roll(1, 0))),
    "mean taps": lambda i, s: _both(i, _sum(i, weight=i["weight"].float().mean(0, keepdim=True).expand(s["dim"], -1))),
    "no state": lambda i, s: _both(i, _sum(i, functional.pad(i["x"], (s["width"] - 1, 0)))),
    "state the other way round": lambda i, s: _both(i, _sum(i, torch.cat([i["conv_states"][0].flip(1), i["x"]], 1))),
    "one token late": _late,
    "tiles begin with zeros": lambda i, s: _in_tiles(i, s, i["x"].new_zeros(s["dim"], s["width"] - 1)),
    "tiles begin with the state": lambda i, s: _in_tiles(i, s, i["conv_states"][0]),
    "last tile left out": _last_tile_left_out,
    "no silu": lambda i, s: (_sum(i).to(BF16), _state(i)),
    "sigmoid alone": lambda i, s: (_sum(i).sigmoid().to(BF16), _state(i)),
    "relu": lambda i, s: (_sum(i).relu().to(BF16), _state(i)),
    "gelu": lambda i, s: (functional.gelu(_sum(i)).to(BF16), _state(i)),
    "state as it was": lambda i, s: _with_state(i, i["conv_states"]),
    "state of the first tokens": lambda i, s: (
        _with_state(i, i["x"][:, :3].unsqueeze(0)) if s["token_count"] > 3 else None
    ),
    "state of outputs": lambda i, s: _with_state(i, silu(_sum(i)).to(BF16)[:, -3:].unsqueeze(0).expand(1, -1, 3)),
    "state without the old one": _padded_state,
    "x in fp8": lambda i, s: _both(i, _sum(i, fp8(_seen(i).float()))),
    "weights in fp8": lambda i, s: _both(i, _sum(i, weight=fp8(i["weight"].float()))),
    "rounds before silu": lambda i, s: _both(i, _sum(i).to(BF16).float()),
    "all in bf16": _all_in_bf16,
}


def _rounded_products(i: Inputs, s: Sizes) -> tuple[Tensor, Tensor]:
    """Tap by tap, each product rounded to bfloat16, the sum in float32, as the deployed kernel does."""
    seen, tokens = _seen(i), s["token_count"]
    total = i["bias"].float().unsqueeze(1).expand(-1, tokens)
    for tap in range(s["width"]):
        total = total + (seen[:, tap : tap + tokens] * i["weight"][:, tap : tap + 1]).float()
    return (total / (1 + torch.exp(-total))).to(BF16), _state(i)


def _by_convolution(i: Inputs, s: Sizes) -> tuple[Tensor, Tensor]:
    total = functional.conv1d(_seen(i).float(), i["weight"].float().unsqueeze(1), i["bias"].float(), groups=s["dim"])
    return (total * (0.5 * torch.tanh(0.5 * total) + 0.5)).to(BF16), _state(i)


RIGHT: dict[str, Candidate] = {
    "products in bf16": _rounded_products,
    "by convolution": _by_convolution,
    "newest tap first": lambda i, s: _both(i, _sum(i, _seen(i).flip(1), i["weight"].flip(1)).flip(1)),
    "float64": lambda i, s: _both(i, _sum(i, kind=torch.float64)),
}


def _exp_overflows(i: Inputs, s: Sizes) -> tuple[Tensor, Tensor]:
    total = _sum(i)
    return (total * total.exp() / (1 + total.exp())).to(BF16), _state(i)


WRONG_ON_CORNERS: dict[tuple[str, str], Candidate] = {
    ("large", "exp overflows"): _exp_overflows,
    ("one_token", "state without the old one"): _padded_state,
    ("two_tokens", "state without the old one"): _padded_state,
    ("closed", "all in bf16"): _all_in_bf16,
}
