"""`mrope` a second time: section by section, each pair turned by Gauss's three products in place of four."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

# Elements of q or k worked on at once, 8 bytes each and about four times over.
CHUNK = 1 << 24


def second(inputs: Mapping[str, Tensor], sizes: Mapping[str, Any]) -> tuple[Tensor, ...]:
    """`q` [T, hq d] and `k` [T, hk d], both new."""
    size = int(sizes["head_size"])
    sections = [int(width) for width in sizes["mrope_section"]]
    return tuple(_turned(inputs[name], inputs["cos"], inputs["sin"], size, sections) for name in ("q", "k"))


def _turned(x: Tensor, cos: Tensor, sin: Tensor, size: int, sections: list[int]) -> Tensor:
    """Every head of every token turned, a section of the frequencies at a time."""
    made = torch.empty_like(x)
    half, step = size // 2, max(1, CHUNK // x.shape[1])
    for start in range(0, len(x), step):
        rows = slice(start, start + step)
        source, target = (one[rows].view(-1, x.shape[1] // size, 2, half) for one in (x, made))
        first = 0
        for position, width in enumerate(sections):
            part = slice(first, first + width)
            turn = [table[position, rows, part].double().unsqueeze(1) for table in (cos, sin)]
            target[..., part] = _by_three(*source[..., part].double().unbind(2), *turn)
            first += width
    return made


def _by_three(x: Tensor, y: Tensor, c: Tensor, s: Tensor) -> Tensor:
    """(x + i y)(c + i s), real parts before imaginary ones along a new dimension before the last.

    Two sums of three products, of which one is in both. It loses a few bits where they cancel, hence float64.
    """
    shared = c * (x + y)
    return torch.stack((shared - y * (c + s), shared + x * (s - c)), 2)
