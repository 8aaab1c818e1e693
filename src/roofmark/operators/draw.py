"""Random inputs and hidden sizes. Seeds have up to 128 bits; each named stream of a seed is independent.

A stream is keyed by BLAKE2b over the seed and the stream's name. On CPU the bits are numpy's Philox under all
128 bits of the key, on CUDA torch's Philox under the low 64: the same seed gives other values there.
"""

from __future__ import annotations

import hashlib
import math
import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy
import torch
from torch import Tensor
from torch.nn import functional


@dataclass(frozen=True)
class Draw:
    """The random streams of one seed on one device."""

    seed: int
    device: str

    def key(self, name: str) -> int:
        """128 bits that name one stream of this seed."""
        digest = hashlib.blake2b(f"{self.seed}/{name}".encode(), digest_size=16).digest()
        return int.from_bytes(digest, "little")

    def bits(self, name: str, shape: Sequence[int], dtype: torch.dtype) -> Tensor:
        """Values of the integer type `dtype`, every bit pattern equally likely."""
        count = math.prod(shape)
        words = -(-count * dtype.itemsize // 8)
        if torch.device(self.device).type == "cpu":
            raw = numpy.random.Philox(key=self.key(name)).random_raw(words)
            wide = torch.from_numpy(raw.view(numpy.int64))
        else:
            source = torch.Generator(self.device).manual_seed(self.key(name) & (2**64 - 1))
            wide = torch.empty(words, dtype=torch.int64, device=self.device)
            wide.random_(-(2**63), None, generator=source)
        return wide.view(dtype)[:count].view(*shape)

    def uniform(
        self, name: str, shape: Sequence[int], dtype: torch.dtype = torch.float32, scale: float = 1.0
    ) -> Tensor:
        """Values of `dtype` spread evenly over -`scale` to `scale`."""
        narrow = dtype.itemsize <= 2
        whole = self.bits(name, shape, torch.int16 if narrow else torch.int32)
        return whole.to(dtype).mul_(scale * 2.0 ** (-15 if narrow else -31))

    def between(self, name: str, shape: Sequence[int], low: float, high: float) -> Tensor:
        """float32 values spread evenly over `low` to `high`."""
        return self.uniform(name, shape).mul_((high - low) / 2).add_((high + low) / 2)

    def permutation(self, name: str, count: int) -> Tensor:
        """The numbers 0 to `count` - 1 in random order, int64."""
        return torch.argsort(self.bits(name, (count,), torch.int64))

    def kinds(self, name: str, count: int, kinds: int) -> Tensor:
        """For each of `count` rows a kind of special contents, 0 to `kinds` - 1, or -1 for plain ones; int64.

        One row in eight is special, the kinds about equally often, at random places. Fewer than 3 rows are all
        plain, and so is the last one, so that an answer that leaves it out is never right by chance.
        """
        place = self.permutation(name, count - 1)
        kind = (place // 8 + self.key(name) % kinds) % kinds
        return functional.pad(torch.where(place % 8 == 1, kind, -1), (0, 1), value=-1)

    def corner_kinds(self, corner: str, count: int, special: Sequence[str]) -> Tensor:
        """The kinds of a corner case's rows: in a tail as `kinds` has them; a single row is of any kind or plain.

        Where the corner case is named as a kind, all rows but the first are of it, elsewhere all are plain.
        """
        if corner == "tail":
            return self.kinds("kind", count, len(special))
        if count == 1:
            return torch.tensor([self.key("kind") % (len(special) + 1) - 1], device=self.device)
        kinds = torch.full((count,), special.index(corner) if corner in special else -1, device=self.device)
        kinds[0] = -1
        return kinds


def near(rng: random.Random, count: int, *, small: int = 641) -> tuple[int, int]:
    """Two distinct odd counts from 3 on that are not `count`: one close to it, and a small one.

    The first lies between an eighth (or 4) below and a sixteenth above, so that whatever a kernel does for large
    counts is met off the public sizes. The second is some half to five quarters of `small`, or of `count` where
    that is less, and also at most a sixteenth above `count`. Where `count` is below 9, both may be up to 9.
    """
    most = max(9, count + count // 16)
    first = rng.choice(_odd(max(3, count - max(4, count // 8)), most, count))
    base = min(count, small)
    few = _odd(max(3, base // 2), min(most, max(9, base * 5 // 4)), count)
    second = rng.choice([n for n in few if n != first])
    return first, second


def _odd(low: int, high: int, but: int) -> list[int]:
    """The odd numbers from `low` to `high` without `but`."""
    return [n for n in range(low | 1, high + 1, 2) if n != but]


def chunks(rows: int, bytes_per_row: int, *, budget: int = 1 << 25) -> Iterator[slice]:
    """Slices that cover `rows`, each of at least one row and at most about `budget` bytes."""
    step = max(1, budget // max(1, bytes_per_row))
    for start in range(0, rows, step):
        yield slice(start, min(start + step, rows))
