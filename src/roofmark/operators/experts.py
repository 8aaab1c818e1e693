"""How many experts a call touches: what the works and the inputs of the mixtures of experts agree on."""

from __future__ import annotations

import math


def touched(tokens: int, experts: int, top_k: int) -> int:
    """How many of `experts` are expected to be touched where every token draws `top_k` of them evenly, rounded up."""
    return math.ceil(experts * (1 - (1 - top_k / experts) ** tokens) - 1e-9)
