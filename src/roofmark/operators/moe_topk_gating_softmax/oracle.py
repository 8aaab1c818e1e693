"""The judge's side of `moe_topk_gating_softmax`: a checker, since equal experts may come in any order."""

from __future__ import annotations

import random
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from roofmark.operators.draw import chunks, near
from roofmark.operators.expected import Expected

# float32 exponentials and sums over a few hundred experts, relative.
FLOAT32 = 2.0**-15
# Probabilities below the normal range of float32 may be flushed.
FLUSHED = 2.0**-120


def neighbours(rng: random.Random, **sizes: Any) -> tuple[dict[str, Any], dict[str, Any]]:
    first, second = near(rng, sizes["token_count"])
    return {**sizes, "token_count": first}, {**sizes, "token_count": second}


def expected_rows(inputs: Mapping[str, Tensor], sizes: Mapping[str, Any], index: Tensor) -> dict[str, Expected]:
    """`weights` and `ids` of the rows `index`; where experts are equal, one right answer of several."""
    gating = inputs["gating"]
    shape = (len(index), sizes["top_k"])
    value = torch.empty(shape, dtype=torch.float64, device=gating.device)
    ids = torch.empty(shape, dtype=torch.int64, device=gating.device)
    for part in chunks(len(index), 32 * gating.shape[1]):
        p = torch.softmax(gating[index[part]].double(), dim=-1)
        value[part], ids[part] = torch.topk(p, sizes["top_k"], dim=-1)
    return {"weights": Expected(value, value * FLOAT32 + FLUSHED), "ids": Expected(ids, None)}


def judge_rows(
    inputs: Mapping[str, Tensor], sizes: Mapping[str, Any], index: Tensor, outputs: Mapping[str, Tensor]
) -> str:
    """What is wrong with `weights` and `ids`, rows `index` in their order; "" if nothing."""
    gating = inputs["gating"]
    for part in chunks(len(index), 32 * gating.shape[1]):
        p = torch.softmax(gating[index[part]].double(), dim=-1)
        wrong = _judge(p, outputs["weights"][part].double(), outputs["ids"][part].long(), index[part])
        if wrong:
            return wrong
    return ""


def _judge(p: Tensor, weights: Tensor, ids: Tensor, index: Tensor) -> str:
    """The first rule that some row breaks, with the row; p [rows, E], weights and ids [rows, k]."""
    in_range = (ids >= 0) & (ids < p.shape[1])
    if not in_range.all():
        return _say("an id that is no expert", ~in_range, ids, index)
    ordered = ids.sort(dim=-1).values
    repeated = torch.zeros_like(in_range)
    repeated[:, 1:] = ordered[:, 1:] == ordered[:, :-1]
    if repeated.any():
        return _say("an expert chosen twice", repeated, ordered, index)
    chosen = p.gather(1, ids)
    close = (weights - chosen).abs() <= chosen * FLOAT32 + FLUSHED
    if not close.all():  # NaN is not close
        return _say("a weight that is not its expert's softmax", ~close, weights, index)
    left_out = p.scatter(1, ids, -1.0).max(dim=-1, keepdim=True).values
    missed = left_out > chosen * (1 + FLOAT32) + FLUSHED
    if missed.any():
        return _say("an expert smaller than one left out", missed, weights, index)
    rising = torch.zeros_like(in_range)
    rising[:, 1:] = weights[:, 1:] > weights[:, :-1]
    if rising.any():
        return _say("a weight larger than the one before it", rising, weights, index)
    return ""


def _say(what: str, where: Tensor, values: Tensor, index: Tensor) -> str:
    row, column = (int(x) for x in where.nonzero()[0])
    return f"{what}: row {int(index[row])}, place {column}: {values[row, column].item():.9g}"
