"""Hidden seeds: a counter hashed with a secret, so that a run can be replayed and no seed be guessed."""

from __future__ import annotations

import hashlib
import random


class Seeds:
    """A stream of 128-bit seeds from one secret of the operating system's."""

    def __init__(self, secret: bytes) -> None:
        self._secret = secret
        self._count = 0

    def next(self) -> int:
        """The next seed."""
        self._count += 1
        data = self._count.to_bytes(8, "little")
        return int.from_bytes(hashlib.blake2b(data, key=self._secret, digest_size=16).digest(), "little")

    def rng(self) -> random.Random:
        """A generator for choices of the referee: order, rows, neighbours."""
        return random.Random(self.next())
