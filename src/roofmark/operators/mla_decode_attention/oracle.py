"""The judge's side of `mla_decode_attention`: float64 values of chosen rows, and a right kernel's error."""

from __future__ import annotations

import random
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from roofmark.operators.draw import chunks, near
from roofmark.operators.expected import Expected
from roofmark.operators.spans import contexts

# Half a unit in the last place of bfloat16, relative.
ROUNDING = torch.finfo(torch.bfloat16).eps / 2
# float32 logits, exponentials and sums, relative to the sum of p |v|: far below the roundings.
FLOAT32 = 2.0**-13
# Probabilities below float32's normal numbers may be flushed: nothing where the output is of order one.
UNDERFLOW = 2.0**-100


def neighbours(rng: random.Random, **sizes: Any) -> tuple[dict[str, Any], dict[str, Any]]:
    """One other length for all sequences, odd, near the shape's; then a few sequences of lengths of their own."""
    first, longest = near(rng, max(contexts(sizes["batch_size"], sizes["ctx_len"])))
    count = near(rng, sizes["batch_size"])[0]
    lengths = [longest, *(rng.randrange(1, longest, 2) for _ in range(count - 1))]
    rng.shuffle(lengths)
    return {**sizes, "ctx_len": first}, {**sizes, "batch_size": count, "ctx_len": lengths}


def expected_rows(inputs: Mapping[str, Tensor], sizes: Mapping[str, Any], index: Tensor) -> dict[str, Expected]:
    """`out` of the sequences `index`.

    Bound: the probabilities, relative to the largest, may be rounded to bfloat16 before the product with the values,
    as deployed kernels do, or not; then the output is rounded. Both products add up in float32.
    """
    lens = inputs["seq_lens"].long()
    starts, lens = (lens.cumsum(0) - lens)[index], lens[index]
    shape = (len(index), sizes["nhead"], sizes["kv_lora_rank"])
    value = torch.empty(shape, dtype=torch.float64, device=index.device)
    spread = torch.empty_like(value)
    width = int(lens.max())
    for part in chunks(len(index), 8 * width * (3 * sizes["nhead"] + 3 * inputs["q"].shape[-1])):
        token = torch.arange(width, device=index.device)
        live = token < lens[part, None]
        place = torch.where(live, starts[part, None] + token, 0)
        latents = inputs["kv_buffer"][:, 0][place].double()
        logits = inputs["q"][index[part]].double() @ latents.transpose(1, 2) * latents.shape[-1] ** -0.5
        p = torch.softmax(logits.masked_fill_(~live[:, None], -torch.inf), dim=-1).nan_to_num_(0.0)
        v = latents[..., : sizes["kv_lora_rank"]]
        value[part], spread[part] = p @ v, p @ v.abs()
    bound = spread.mul_(ROUNDING + FLOAT32).add_(value.abs(), alpha=ROUNDING).add_(UNDERFLOW)
    return {"out": Expected(value, bound)}
