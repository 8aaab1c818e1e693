"""The judge's side of `paged_attention_decode`: float64 values of chosen rows, and a right kernel's error."""

from __future__ import annotations

import random
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from roofmark.operators.draw import chunks, near
from roofmark.operators.expected import Expected
from roofmark.operators.spans import contexts

# float32 logits, exponentials and sums, relative to the sum of p |v|.
FLOAT32 = 2.0**-14
# A probability, relative to the largest, that is rounded to fp16 below its normal range.
UNDERFLOW = 2.0**-24


def neighbours(rng: random.Random, **sizes: Any) -> tuple[dict[str, Any], dict[str, Any]]:
    """Other lengths, so that the last block has a tail; then another number of sequences too, unless it is 1."""
    first, second = near(rng, max(contexts(sizes["num_seqs"], sizes["ctx_len"])))
    count = near(rng, sizes["num_seqs"])[0] if sizes["num_seqs"] > 1 else 1
    return {**sizes, "ctx_len": first}, {**sizes, "ctx_len": second, "num_seqs": count}


def expected_rows(inputs: Mapping[str, Tensor], sizes: Mapping[str, Any], index: Tensor) -> dict[str, Expected]:
    """`out` of the sequences `index`.

    Bound: the probabilities, relative to the largest, may be rounded to the cache's type before the product
    with the values, or not; then the output is rounded. Both products add up in float32.
    """
    query = inputs["query"]
    rounding = torch.finfo(query.dtype).eps / 2
    value = torch.empty((len(index), *query.shape[1:]), dtype=torch.float64, device=query.device)
    bound = torch.empty_like(value)
    tokens = inputs["block_tables"].shape[1] * sizes["block_size"]
    for part in chunks(len(index), 32 * tokens * inputs["key_cache"].shape[1] * query.shape[2]):
        value[part], spread, total = _attend(inputs, index[part])
        bound[part] = spread * (rounding + FLOAT32) + value[part].abs() * rounding + total * UNDERFLOW
    return {"out": Expected(value, bound)}


def _attend(inputs: Mapping[str, Tensor], rows: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """The sums of p v, of p |v| and of |v| over each chosen sequence's tokens."""
    query = inputs["query"][rows].double()
    blocks = inputs["block_tables"][rows].long()
    lengths = inputs["context_lens"][rows].view(-1, 1, 1, 1)
    n, hq, d = query.shape
    hk = inputs["key_cache"].shape[1]
    # [n, block, head, d / 8, slot, 8] and [n, block, head, d, slot] to [n, head, token, d]
    k = inputs["key_cache"][blocks].double().permute(0, 2, 1, 4, 3, 5).reshape(n, hk, -1, d)
    v = inputs["value_cache"][blocks].double().permute(0, 2, 1, 4, 3).reshape(n, hk, -1, d)
    live = torch.arange(k.shape[2], device=query.device).view(1, 1, 1, -1) < lengths
    v = torch.where(live.transpose(-1, -2), v, 0.0)
    logits = query.view(n, hk, hq // hk, d) @ k.transpose(-1, -2) * d**-0.5
    p = torch.softmax(logits.masked_fill(~live, -torch.inf), dim=-1).nan_to_num(0.0)
    value, spread = p @ v, p @ v.abs()
    total = v.abs().sum(2, keepdim=True).expand_as(value)
    return value.reshape(n, hq, d), spread.reshape(n, hq, d), total.reshape(n, hq, d)
