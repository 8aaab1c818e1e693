"""Rows that are hard to quantise: what the inputs of the quantising operators hold here and there, and corner cases."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from roofmark.operators import fp8


def _largest(x: Tensor) -> Tensor:
    return x.abs().amax(-1, keepdim=True)


def _ties(x: Tensor) -> Tensor:
    """Five significant bits under a scale that is a power of two: every other one lies between two codes."""
    x = x.view(torch.int16).bitwise_and(~7).view(torch.bfloat16)
    top = fp8.largest(fp8.kind(x.device))
    largest = torch.exp2((_largest(x).float() / top).log2_().ceil_()).mul_(top)
    return x.scatter(1, x.abs().argmax(-1, keepdim=True), largest.to(torch.bfloat16))


def _sized(x: Tensor, exponent: int) -> Tensor:
    """Rows with a largest of two to the power of `exponent` or up to twice that."""
    return x * torch.exp2(exponent - _largest(x).float().log2_().floor_()).to(torch.bfloat16)


CHANGES: dict[str, Callable[[Tensor], Tensor]] = {
    "zeros": torch.zeros_like,
    "ties": _ties,
    "one_element": lambda x: torch.where(x.abs() == _largest(x), x, 0.0),
    "equal": lambda x: torch.copysign(_largest(x), x),
    "large": lambda x: _sized(x, 100),
    "small": lambda x: _sized(x, -8),
}
CORNER_TOKENS = {"one_token": 1, "tail": 37, **dict.fromkeys(CHANGES, 3)}


def change(x: Tensor, kind: Tensor) -> None:
    """Makes the rows of bfloat16 `x` in place what `kind` says: a number of CHANGES, or -1 for those that stay."""
    for number, changed in enumerate(CHANGES.values()):
        rows = (kind == number).nonzero().flatten()
        x[rows] = changed(x[rows])
