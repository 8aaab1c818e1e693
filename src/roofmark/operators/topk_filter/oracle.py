"""The judge's side of `topk_filter`: exact values of chosen rows."""

from __future__ import annotations

import random
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from roofmark.operators.draw import chunks, near
from roofmark.operators.expected import Expected

TOP_K = 50


def neighbours(rng: random.Random, **sizes: Any) -> tuple[dict[str, Any], dict[str, Any]]:
    first, second = near(rng, sizes["seq_len"])
    return {**sizes, "seq_len": first}, {**sizes, "seq_len": second}


def expected_rows(inputs: Mapping[str, Tensor], sizes: Mapping[str, Any], index: Tensor) -> dict[str, Expected]:
    """`y` of the rows `index`: exact, since what is kept is copied."""
    logits = inputs["logits"]
    value = torch.empty((len(index), logits.shape[1]), dtype=torch.float64, device=logits.device)
    for part in chunks(len(index), 32 * logits.shape[1]):
        rows = logits[index[part]]
        ordered = rows.sort(dim=-1, descending=True).values
        least = ordered[:, sizes.get("top_k", TOP_K) - 1, None]
        value[part] = torch.where(rows >= least, rows, -torch.inf).double()
    return {"y": Expected(value, None)}
