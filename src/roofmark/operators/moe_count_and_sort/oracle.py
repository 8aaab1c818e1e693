"""The judge's side of `moe_count_and_sort`: the one right answer, exactly."""

from __future__ import annotations

import random
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from roofmark.operators.draw import near
from roofmark.operators.expected import Expected

# A slot's place depends on every other slot, and the outputs differ in rows.
WHOLE = True


def neighbours(rng: random.Random, **sizes: Any) -> tuple[dict[str, Any], dict[str, Any]]:
    first, second = near(rng, sizes["token_count"])
    return {**sizes, "token_count": first}, {**sizes, "token_count": second}


def expected_rows(inputs: Mapping[str, Tensor], sizes: Mapping[str, Any], index: Tensor) -> dict[str, Expected]:
    """All of `sorted_ids`, `counts` and `cumsum`, whatever `index` is."""
    experts = inputs["topk_ids"].flatten().long()
    slots = torch.arange(len(experts), device=experts.device)
    keys = torch.sort(experts * len(experts) + slots).values  # distinct, so that any sort is stable
    bounds = torch.arange(sizes["num_experts"] + 1, device=experts.device) * len(experts)
    cumsum = torch.searchsorted(keys, bounds)
    return {
        "sorted_ids": Expected(keys % len(experts), None),
        "counts": Expected(cumsum.diff(), None),
        "cumsum": Expected(cumsum, None),
    }
