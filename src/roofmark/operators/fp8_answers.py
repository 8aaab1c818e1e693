"""Codes and scales of rows in right ways and wrong ones, for the zoos of the quantising operators."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from roofmark.operators import fp8

# From rows [n, width] to their codes and their scales [n].
Answer = Callable[[Tensor], tuple[Tensor, Tensor]]


def top(x: Tensor) -> float:
    """The largest value of fp8 on the device of `x`."""
    return fp8.largest(fp8.kind(x.device))


def codes(quotient: Tensor) -> Tensor:
    """The nearest codes."""
    return quotient.clamp(-top(quotient), top(quotient)).to(fp8.kind(quotient.device))


def quotient(x: Tensor, scale: Tensor) -> Tensor:
    """x / scale in float32, x where the scale is zero."""
    return x.float() / torch.where(scale > 0, scale, 1.0).unsqueeze(-1)


def right(x: Tensor) -> tuple[Tensor, Tensor]:
    """The plain right answer."""
    return by(x, x.float().abs().amax(-1))


def by(x: Tensor, largest: Tensor | float) -> tuple[Tensor, Tensor]:
    """The answer under other largest values of the rows, float32, or one for all."""
    scale = largest / top(x) * torch.ones(len(x), device=x.device)
    return codes(quotient(x, scale)), scale


def changed(change: Callable[[Tensor], Tensor]) -> Answer:
    """The right scale, and codes of changed quotients."""
    return lambda x: (codes(change(quotient(x, right(x)[1]))), right(x)[1])


def scaled(change: Callable[[Tensor], Tensor]) -> Answer:
    """A changed scale, and codes that go with it."""

    def answer(x: Tensor) -> tuple[Tensor, Tensor]:
        scale = change(right(x)[1])
        return codes(quotient(x, scale)), scale

    return answer


def bits(x: Tensor, count: int) -> Tensor:
    """`x` with this many significant bits."""
    fraction, exponent = torch.frexp(x)
    return torch.ldexp((fraction * 2.0**count).round_(), exponent - count)


def _toward_zero(quotient: Tensor) -> Tensor:
    nearest = codes(quotient).float()
    return torch.where(nearest.abs() > quotient.abs(), nearest * (1 - 2.0**-4), nearest)


def _by_part(share: float) -> Answer:
    return lambda x: by(x, x[:, : int(x.shape[1] * share)].float().abs().amax(-1))


def _inverse(x: Tensor) -> tuple[Tensor, Tensor]:
    q, scale = right(x)
    return q, torch.where(scale > 0, 1 / scale, 0.0)


WRONG: dict[str, Answer] = {
    "no scale": lambda x: by(x, top(x)),
    "mean for the largest": lambda x: by(x, x.abs().float().mean(-1)),
    "root mean square for the largest": lambda x: by(x, x.float().square().mean(-1).sqrt()),
    "largest without its sign": lambda x: by(x, x.float().amax(-1)),
    "largest of the first half": _by_part(1 / 2),
    "last sixteenth left out": _by_part(15 / 16),
    "other type's fp8_max": lambda x: scaled(lambda scale: scale * top(x) / (688 - top(x)))(x),
    "inverse scale": _inverse,
    "scale a power of two": scaled(lambda scale: torch.exp2(scale.log2().ceil())),
    "scale of 7 bits": scaled(lambda scale: bits(scale, 7)),
    "rounds toward zero": changed(_toward_zero),
    "small codes flushed": changed(lambda q: torch.where(q.abs() < 2.0**-6, 0.0, q)),
    "quotient of 8 bits": changed(lambda q: bits(q, 8)),
    "quotient of 11 bits": changed(lambda q: bits(q, 11)),
    "values in fp8 before": lambda x: right(codes(x.float()).to(torch.bfloat16)),
    "codes of e5m2": changed(lambda q: q.to(torch.float8_e5m2).float()),
}


def _by_inverses(x: Tensor) -> tuple[Tensor, Tensor]:
    scale = x.abs().amax(-1).float() * (1 / top(x))
    return codes(x.float() * torch.where(scale > 0, 1 / scale, 0.0).unsqueeze(-1)), scale


def _in_float64(x: Tensor) -> tuple[Tensor, Tensor]:
    x = x.double()
    scale = x.abs().amax(-1, keepdim=True) / top(x)
    return codes(x / torch.where(scale > 0, scale, 1.0)), scale.float().squeeze(-1)


RIGHT: dict[str, Answer] = {
    "by inverses": _by_inverses,
    "in float64 throughout": _in_float64,
    "scale not below a floor": lambda x: scaled(lambda scale: scale.clamp(min=fp8.ZERO_SCALE / top(x)))(x),
    "ties away from zero": changed(lambda q: q * (1 + 2.0**-20)),
}
WRONG_ON_CORNERS: dict[tuple[str, str], Answer] = {
    ("zeros", "0 / 0"): lambda x: (codes(x.float() / right(x)[1].unsqueeze(-1)), right(x)[1]),
    ("large", "largest by squares"): lambda x: by(x, x.float().square().amax(-1).sqrt()),
    ("small", "scale floored too high"): scaled(lambda scale: scale.clamp(min=5e-5)),
}
