"""What a run says of itself while it goes on."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True)
class Progress:
    """One step: what is being done, and how many of how many are through; 0 of 0 where it can't be counted.

    A `note` is no step but something to be said.
    """

    what: str
    done: int = 0
    total: int = 0
    note: bool = False


Watch = Callable[[Progress], None]
