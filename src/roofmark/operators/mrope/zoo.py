"""Wrong answers to `mrope` that must fail, and right ones by another way that must pass."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor

from roofmark.operators.zoo import Candidate

Inputs = Mapping[str, Tensor]
Sizes = dict[str, Any]
Pair = tuple[Tensor, Tensor]
Turn = Callable[[Tensor, Tensor, Tensor], Tensor]

ROWS = ("q", "k", "cos", "sin")
ROW_DIMS = {"cos": 1, "sin": 1}
BF16 = torch.bfloat16


def _tables(i: Inputs, order: list[int]) -> Pair:
    """Cosines and sines [T, 1, d / 2]; frequency n uses position order[n]."""
    place = torch.tensor(order)
    cos, sin = (i[name][place, :, torch.arange(len(order))].T.unsqueeze(1) for name in ("cos", "sin"))
    return cos, sin


def _order(s: Sizes, positions: tuple[int, int, int] = (0, 1, 2), sections: list[int] | None = None) -> list[int]:
    counts = s["mrope_section"] if sections is None else sections
    return [p for p, count in zip(positions, counts, strict=True) for _ in range(count)]


def _halves(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    first, second = x.chunk(2, dim=-1)
    return torch.cat([first * cos - second * sin, second * cos + first * sin], dim=-1)


def _neighbours(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    even, odd = x[..., ::2], x[..., 1::2]
    return torch.stack([even * cos - odd * sin, odd * cos + even * sin], dim=-1).flatten(-2)


def _heads(i: Inputs, s: Sizes, name: str) -> Tensor:
    return i[name].float().view(len(i[name]), -1, s["head_size"])


def _by(i: Inputs, s: Sizes, cos: Tensor, sin: Tensor, turn: Turn = _halves) -> Pair:
    q, k = (turn(_heads(i, s, name), cos, sin).to(BF16).flatten(1) for name in ("q", "k"))
    return q, k


def _by_order(i: Inputs, s: Sizes, order: list[int]) -> Pair:
    return _by(i, s, *_tables(i, order))


def _right(i: Inputs, s: Sizes, turn: Turn = _halves) -> Pair:
    return _by(i, s, *_tables(i, _order(s)), turn)


def _interleaved(i: Inputs, s: Sizes) -> Pair:
    _, h, w = s["mrope_section"]
    order = [1 if n % 3 == 1 and n < 3 * h else 2 if n % 3 == 2 and n < 3 * w else 0 for n in range(64)]
    return _by_order(i, s, order)


def _mean_of_three(i: Inputs, s: Sizes) -> Pair:
    return _by(i, s, i["cos"].mean(0).unsqueeze(1), i["sin"].mean(0).unsqueeze(1))


def _next_token(i: Inputs, s: Sizes) -> Pair:
    cos, sin = _tables(i, _order(s))
    return _by(i, s, cos.roll(1, 0), sin.roll(1, 0))


def _last_head_left(i: Inputs, s: Sizes, *, name: str) -> Pair:
    q, k = _right(i, s)
    made = q if name == "q" else k
    made[:, -s["head_size"] :] = i[name][:, -s["head_size"] :]
    return q, k


def _last_token_left(i: Inputs, s: Sizes) -> Pair:
    q, k = _right(i, s)
    q[-1], k[-1] = i["q"][-1], i["k"][-1]
    return q, k


def _products_rounded(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    first, second = x.chunk(2, dim=-1)
    a = (first * cos).to(BF16) - (second * sin).to(BF16)
    return torch.cat([a, (second * cos).to(BF16) + (first * sin).to(BF16)], dim=-1)


def _cut(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Brought to bfloat16 by leaving off bits, not by rounding."""
    return (_halves(x, cos, sin).view(torch.int32) >> 16 << 16).view(torch.float32)


def _in_bf16(i: Inputs, s: Sizes) -> Pair:
    cos, sin = (table.to(BF16).float() for table in _tables(i, _order(s)))
    return _by(i, s, cos, sin)


WRONG: dict[str, Candidate] = {
    "nothing turned": lambda i, s: (i["q"], i["k"]),
    "queries not turned": lambda i, s: (i["q"], _right(i, s)[1]),
    "keys not turned": lambda i, s: (_right(i, s)[0], i["k"]),
    "first position alone": lambda i, s: _by_order(i, s, [0] * 64),
    "second position alone": lambda i, s: _by_order(i, s, [1] * 64),
    "third position alone": lambda i, s: _by_order(i, s, [2] * 64),
    "first position for the second": lambda i, s: _by_order(i, s, _order(s, (0, 0, 2))),
    "second position for the third": lambda i, s: _by_order(i, s, _order(s, (0, 1, 1))),
    "positions in another order": lambda i, s: _by_order(i, s, _order(s, (2, 0, 1))),
    "sections in another order": lambda i, s: _by_order(i, s, _order(s, sections=s["mrope_section"][::-1])),
    "one frequency too many": lambda i, s: _by_order(i, s, _order(s, sections=[17, 23, 24])),
    "sections interleaved": _interleaved,
    "mean of the positions": _mean_of_three,
    "cosines of the next token": _next_token,
    "turned back": lambda i, s: _right(i, s, lambda x, cos, sin: _halves(x, cos, -sin)),
    "cosine alone": lambda i, s: _right(i, s, lambda x, cos, sin: _halves(x, cos, sin * 0)),
    "sine alone": lambda i, s: _right(i, s, lambda x, cos, sin: _halves(x, cos * 0, sin)),
    "pairs of neighbours": lambda i, s: _right(i, s, _neighbours),
    "last query head left": lambda i, s: _last_head_left(i, s, name="q"),
    "last key head left": lambda i, s: _last_head_left(i, s, name="k"),
    "last token left": _last_token_left,
    "cosines and sines in bf16": _in_bf16,
    "queries and keys in fp8": lambda i, s: _right(
        i, s, lambda x, cos, sin: _halves((x / 16).to(torch.float8_e4m3fn).float() * 16, cos, sin)
    ),
    "products rounded": lambda i, s: _right(i, s, _products_rounded),
    "queries cut, not rounded": lambda i, s: (_right(i, s, _cut)[0], _right(i, s)[1]),
    "keys cut, not rounded": lambda i, s: (_right(i, s)[0], _right(i, s, _cut)[1]),
}


def _complex(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    first, second = x.chunk(2, dim=-1)
    turned = torch.complex(first.contiguous(), second.contiguous()) * torch.complex(cos, sin)
    return torch.cat([turned.real, turned.imag], dim=-1)


def _rotated_half(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """x cos + (x with its halves swapped and one negated) sin, over whole heads."""
    first, second = x.chunk(2, dim=-1)
    half = torch.cat([-second, first], dim=-1)
    return torch.addcmul(x * torch.cat([cos, cos], dim=-1), half, torch.cat([sin, sin], dim=-1))


RIGHT: dict[str, Candidate] = {
    "float64": lambda i, s: _right(i, s, lambda x, cos, sin: _halves(x.double(), cos.double(), sin.double())),
    "complex": lambda i, s: _right(i, s, _complex),
    "rotated half": lambda i, s: _right(i, s, _rotated_half),
}

WRONG_ON_CORNERS: dict[tuple[str, str], Candidate] = {
    ("starts", "tokens at position 0 left"): lambda i, s: tuple(
        torch.where((i["sin"] == 0).all(-1).any(0).unsqueeze(-1), i[name], right)
        for name, right in zip(("q", "k"), _right(i, s), strict=True)
    ),
    ("large", "products in fp16"): lambda i, s: _right(
        i, s, lambda x, cos, sin: _halves(x.half(), cos.half(), sin.half())
    ),
}
