"""Wrong answers to `fused_qkv_rope` that must fail, and right ones by another way that must pass."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor

from roofmark.operators.zoo import Candidate

Inputs = Mapping[str, Tensor]
Sizes = dict[str, Any]
Three = tuple[Tensor, Tensor, Tensor]

ROWS = ("qkv", "positions")
BASE = 10000.0
BF16 = torch.bfloat16


def _heads(i: Inputs, s: Sizes) -> Three:
    """Query, key and value heads [T, h, d] with the bias, in float32."""
    x = i["qkv"] + i["bias"] if "bias" in i else i["qkv"]
    parts = [s["num_heads"], s["num_kv_heads"], s["num_kv_heads"]]
    q, k, v = torch.split(x.float().view(len(x), -1, s["head_dim"]), parts, dim=1)
    return q, k, v


def _frequencies(s: Sizes, base: float = BASE) -> Tensor:
    return torch.pow(base, -torch.arange(0, s["rope_dim"], 2) / s["rope_dim"])


def _angles(i: Inputs, s: Sizes) -> Tensor:
    return i["positions"].view(-1, 1, 1) * _frequencies(s)


def _turn(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    first, second = x.chunk(2, dim=-1)
    return torch.cat([first * cos - second * sin, second * cos + first * sin], dim=-1)


def _out(i: Inputs, *heads: Tensor) -> Three:
    q, k, v = (x.to(i["qkv"].dtype) for x in heads)
    return q, k, v


def _by(i: Inputs, s: Sizes, cos: Tensor, sin: Tensor) -> Three:
    q, k, v = _heads(i, s)
    return _out(i, _turn(q, cos, sin), _turn(k, cos, sin), v)


def _by_angles(i: Inputs, s: Sizes, angle: Tensor) -> Three:
    return _by(i, s, angle.cos(), angle.sin())


def _at(change: Callable[[Tensor], Tensor]) -> Candidate:
    """Other positions than the given ones."""
    return lambda i, s: _by_angles(i, s, _angles({**i, "positions": change(i["positions"])}, s))


def _some_turned(i: Inputs, s: Sizes, *, turned: str) -> Three:
    cos, sin = _angles(i, s).cos(), _angles(i, s).sin()
    q, k, v = (_turn(x, cos, sin) if n in turned else x for n, x in zip("qkv", _heads(i, s), strict=True))
    return _out(i, q, k, v)


def _right(i: Inputs, s: Sizes) -> Three:
    return _some_turned(i, s, turned="qk")


def _pairs_of_neighbours(i: Inputs, s: Sizes) -> Three:
    cos, sin = _angles(i, s).cos(), _angles(i, s).sin()

    def turn(x: Tensor) -> Tensor:
        even, odd = x[..., ::2], x[..., 1::2]
        return torch.stack([even * cos - odd * sin, odd * cos + even * sin], dim=-1).flatten(-2)

    q, k, v = _heads(i, s)
    return _out(i, turn(q), turn(k), v)


def _half_of_the_frequencies(i: Inputs, s: Sizes) -> Three:
    angle = _angles(i, s)
    angle[..., angle.shape[-1] // 2 :] = 0.0
    return _by_angles(i, s, angle)


def _last_head_left(i: Inputs, s: Sizes, *, which: int) -> Three:
    made = _right(i, s)
    made[which][:, -1] = _heads(i, s)[which][:, -1].to(made[which].dtype)
    return made


def _keys_and_values_swapped(i: Inputs, s: Sizes) -> Three:
    q, k, v = _right(i, s)
    return q, v, k


def _cut(x: Tensor, kind: torch.dtype) -> Tensor:
    """`x` brought to `kind` by leaving off bits, not by rounding."""
    rounded = x.to(kind)
    larger = rounded.float().abs() > x.abs()
    return (rounded.view(torch.int16) - larger.to(torch.int16)).view(kind)


def _one_cut(i: Inputs, s: Sizes, *, which: int) -> Three:
    made = list(_right(i, s))
    cos, sin = _angles(i, s).cos(), _angles(i, s).sin()
    made[which] = _cut(_turn(_heads(i, s)[which], cos, sin), i["qkv"].dtype)
    return made[0], made[1], made[2]


def _products_rounded(i: Inputs, s: Sizes) -> Three:
    kind = i["qkv"].dtype
    cos, sin = _angles(i, s).cos(), _angles(i, s).sin()

    def turn(x: Tensor) -> Tensor:
        first, second = x.chunk(2, dim=-1)
        a, b = (first * cos).to(kind) - (second * sin).to(kind), (second * cos).to(kind) + (first * sin).to(kind)
        return torch.cat([a, b], dim=-1)

    q, k, v = _heads(i, s)
    return turn(q), turn(k), v.to(kind)


def _rounded(x: Tensor, kind: torch.dtype) -> Tensor:
    return x.to(kind).float()


WRONG: dict[str, Candidate] = {
    "nothing turned": lambda i, s: _some_turned(i, s, turned=""),
    "queries not turned": lambda i, s: _some_turned(i, s, turned="k"),
    "keys not turned": lambda i, s: _some_turned(i, s, turned="q"),
    "values turned too": lambda i, s: _some_turned(i, s, turned="qkv"),
    "keys and values swapped": _keys_and_values_swapped,
    "last query head left": lambda i, s: _last_head_left(i, s, which=0),
    "last key head left": lambda i, s: _last_head_left(i, s, which=1),
    "row for position": _at(lambda p: torch.arange(len(p))),
    "positions off by one": _at(lambda p: p + 1),
    "positions up to 1023": _at(lambda p: p % 1024),
    "turned back": lambda i, s: _by_angles(i, s, -_angles(i, s)),
    "cosine alone": lambda i, s: _by(i, s, _angles(i, s).cos(), torch.zeros(1)),
    "sine alone": lambda i, s: _by(i, s, torch.zeros(1), _angles(i, s).sin()),
    "pairs of neighbours": _pairs_of_neighbours,
    "other base": lambda i, s: _by_angles(i, s, i["positions"].view(-1, 1, 1) * _frequencies(s, 1e6)),
    "one frequency": lambda i, s: _by_angles(i, s, _angles(i, s)[..., :1].expand(-1, 1, s["rope_dim"] // 2)),
    "frequencies reversed": lambda i, s: _by_angles(i, s, _angles(i, s).flip(-1)),
    "half of the frequencies": _half_of_the_frequencies,
    "frequencies too dense": lambda i, s: _by_angles(i, s, i["positions"].view(-1, 1, 1) * _frequencies(s, BASE**0.5)),
    "frequencies in bf16": lambda i, s: _by_angles(
        i, s, i["positions"].view(-1, 1, 1) * _rounded(_frequencies(s), BF16)
    ),
    "sines in bf16": lambda i, s: _by(i, s, _rounded(_angles(i, s).cos(), BF16), _rounded(_angles(i, s).sin(), BF16)),
    "products rounded": _products_rounded,
    "queries cut, not rounded": lambda i, s: _one_cut(i, s, which=0),
    "keys cut, not rounded": lambda i, s: _one_cut(i, s, which=1),
}


def _float64(i: Inputs, s: Sizes) -> Three:
    share = torch.arange(0, s["rope_dim"], 2, dtype=torch.float64) / s["rope_dim"]
    angle = i["positions"].double().view(-1, 1, 1) * torch.pow(BASE, -share)
    q, k, v = (x.double() for x in _heads(i, s))
    return _out(i, _turn(q, angle.cos(), angle.sin()), _turn(k, angle.cos(), angle.sin()), v)


def _complex(i: Inputs, s: Sizes) -> Three:
    """Base 2, complex products, and the bias added without a rounding of its own."""
    angle = i["positions"].view(-1, 1, 1) * torch.exp2(torch.arange(s["rope_dim"] // 2) * -(2 * math.log2(BASE) / 128))
    factor = torch.polar(torch.ones_like(angle), angle)
    x = i["qkv"].float() + i.get("bias", torch.zeros(1)).float()
    x = x.view(len(x), -1, s["head_dim"])
    first, second = x.chunk(2, dim=-1)
    turned = torch.complex(first.contiguous(), second.contiguous()) * factor
    whole = torch.cat([turned.real, turned.imag], dim=-1)
    keys = s["num_heads"] + s["num_kv_heads"]
    return _out(i, whole[:, : s["num_heads"]], whole[:, s["num_heads"] : keys], x[:, keys:])


def _table(i: Inputs, s: Sizes) -> Three:
    """Sines and cosines looked up in a table of the whole context."""
    table = torch.arange(1 << 13).unsqueeze(1) / torch.pow(BASE, torch.arange(0, s["rope_dim"], 2) / s["rope_dim"])
    rows = i["positions"].long()
    return _by(i, s, table.cos()[rows].unsqueeze(1), table.sin()[rows].unsqueeze(1))


RIGHT: dict[str, Candidate] = {"float64": _float64, "complex": _complex, "table": _table}


def _without_bias(i: Inputs) -> Inputs:
    return {name: value for name, value in i.items() if name != "bias"}


def _bias_for(i: Inputs, s: Sizes, names: str) -> Three:
    with_bias, without = _right(i, s), _right(_without_bias(i), s)
    q, k, v = (a if n in names else b for n, a, b in zip("qkv", with_bias, without, strict=True))
    return q, k, v


def _bias_after_the_turn(i: Inputs, s: Sizes) -> Three:
    parts = [s["num_heads"], s["num_kv_heads"], s["num_kv_heads"]]
    bias = torch.split(i["bias"].float().view(-1, s["head_dim"]), parts, dim=0)
    return _out(i, *(x + b for x, b in zip(_right(_without_bias(i), s), bias, strict=True)))


WRONG_ON_CORNERS: dict[tuple[str, str], Candidate] = {
    ("bias", "bias dropped"): lambda i, s: _bias_for(i, s, ""),
    ("bias", "bias on queries and keys alone"): lambda i, s: _bias_for(i, s, "qk"),
    ("bias", "bias on values alone"): lambda i, s: _bias_for(i, s, "v"),
    ("bias", "bias after the turn"): _bias_after_the_turn,
    ("bias", "bias in fp8"): lambda i, s: _right(
        {**i, "bias": i["bias"].to(torch.float8_e4m3fn).to(i["bias"].dtype)}, s
    ),
    ("tail", "first position for all"): _at(lambda p: p[:1]),
    ("last_positions", "positions in fp16"): _at(lambda p: p.half().float()),
    ("first_positions", "positions from 1"): _at(lambda p: p.clamp(min=1)),
}
