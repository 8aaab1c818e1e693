"""Wrong and right answers of `paged_attention_decode`; see `roofmark.operators.zoo`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from roofmark.operators.zoo import Candidate, fp8, significant

Inputs = Mapping[str, Tensor]


def _gather(i: Inputs, group: Tensor | None = None) -> tuple[Tensor, Tensor]:
    """Keys and values [n, hq, tokens, d] in float32 for each query head."""
    n, hq, d = i["query"].shape
    hk = i["key_cache"].shape[1]
    blocks = i["block_tables"].long()
    k = i["key_cache"][blocks].float().permute(0, 2, 1, 4, 3, 5).reshape(n, hk, -1, d)
    v = i["value_cache"][blocks].float().permute(0, 2, 1, 4, 3).reshape(n, hk, -1, d)
    group = torch.arange(hq) // (hq // hk) if group is None else group
    return k[:, group], v[:, group]


def _logits(i: Inputs, k: Tensor) -> Tensor:
    logits: Tensor = (i["query"].float().unsqueeze(2) @ k.transpose(-1, -2)).squeeze(2) * k.shape[-1] ** -0.5
    beyond = torch.arange(k.shape[2]) >= i["context_lens"].view(-1, 1, 1)
    return logits.masked_fill(beyond, -torch.inf)


def _paged(i: Inputs, *, group: Tensor | None = None, times: float = 1.0) -> Tensor:
    k, v = _gather(i, group)
    p = (_logits(i, k) * times).softmax(-1).unsqueeze(2)
    return _empty_as_zero((p @ v).squeeze(2), i)


def _empty_as_zero(out: Tensor, i: Inputs) -> Tensor:
    return torch.where(i["context_lens"].view(-1, 1, 1) > 0, out, 0.0).to(i["query"].dtype)


def _cut(i: Inputs, tokens: int) -> Inputs:
    return {**i, "context_lens": i["context_lens"].clamp(max=tokens)}


def _lengths_ignored(i: Inputs, s: dict[str, Any]) -> Tensor | None:
    full = i["block_tables"].shape[1] * s["block_size"]
    if (i["context_lens"] == full).all():
        return None
    return _paged({**i, "context_lens": torch.full_like(i["context_lens"], full)})


def _kv_head_by_remainder(i: Inputs, s: dict[str, Any]) -> Tensor | None:
    if s["num_kv_heads"] in (1, s["num_query_heads"]):
        return None
    return _paged(i, group=torch.arange(s["num_query_heads"]) % s["num_kv_heads"])


def _first_kv_head(i: Inputs, s: dict[str, Any]) -> Tensor | None:
    if s["num_kv_heads"] == 1:
        return None
    return _paged(i, group=torch.zeros(s["num_query_heads"], dtype=torch.int64))


def _table_in_order(i: Inputs, s: dict[str, Any]) -> Tensor:
    table = i["block_tables"]
    return _paged({**i, "block_tables": torch.arange(table.numel()).view(table.shape).to(table.dtype)})


def _first_block_twice(i: Inputs, s: dict[str, Any]) -> Tensor:
    table = i["block_tables"].clone()
    table[:, -1] = table[:, 0]
    return _paged({**i, "block_tables": table})


def _key_layout_misread(i: Inputs, s: dict[str, Any]) -> Tensor:
    key = i["key_cache"]
    return _paged({**i, "key_cache": key.flatten(2).view(*key.shape[:2], 16, -1, 8).transpose(2, 3).contiguous()})


def _values_in_fewer_bits(i: Inputs, s: dict[str, Any]) -> Tensor:
    bits = {torch.bfloat16: 6, torch.float16: 9}[i["query"].dtype]
    return _paged({**i, "value_cache": significant(i["value_cache"], bits)})


ROWS = ("query", "block_tables", "context_lens")
WRONG: dict[str, Candidate] = {
    "table ignored": _table_in_order,
    "next sequence's table": lambda i, s: _paged({**i, "block_tables": i["block_tables"].roll(1, 0)}),
    "first block twice": _first_block_twice,
    "first 16 tokens": lambda i, s: _paged(_cut(i, 16)),
    "last token left out": lambda i, s: _paged({**i, "context_lens": i["context_lens"] - 1}),
    "last block left out": lambda i, s: _paged({**i, "context_lens": (i["context_lens"] - 1) // 16 * 16}),
    "first kv head": _first_kv_head,
    "kv head by remainder": _kv_head_by_remainder,
    "no scale": lambda i, s: _paged(i, times=s["head_size"] ** 0.5),
    "scale 1 / d": lambda i, s: _paged(i, times=s["head_size"] ** -0.5),
    "mean of values": lambda i, s: _paged({**i, "query": torch.zeros_like(i["query"])}),
    "keys misread": _key_layout_misread,
    "values two bits short": _values_in_fewer_bits,
    "query in fp8": lambda i, s: _paged({**i, "query": fp8(i["query"].float()).to(i["query"].dtype)}),
}


def _online(i: Inputs, s: dict[str, Any]) -> Tensor:
    """Softmax and product block by block, in base 2, with p rounded to the cache's type, as fused kernels do."""
    k, v = _gather(i)
    kind = i["query"].dtype
    logits = _logits(i, k).unsqueeze(2)
    top = torch.full_like(logits[..., :1], -torch.inf)
    total, out = torch.zeros_like(top), torch.zeros(*logits.shape[:-1], v.shape[-1])
    for part, values in zip(torch.split(logits, 16, -1), torch.split(v, 16, -2), strict=True):
        new = torch.maximum(top, part.max(-1, keepdim=True).values)
        p = torch.exp2((part - new) * 1.4426950408889634)
        shrink = torch.exp2((top - new) * 1.4426950408889634)
        total = total * shrink + p.sum(-1, keepdim=True)
        out = out * shrink + p.to(kind).float() @ values
        top = new
    return _empty_as_zero((out / total).squeeze(2), i)


RIGHT: dict[str, Candidate] = {"online": _online, "float32": lambda i, s: _paged(i)}


def _longest_for_all(i: Inputs, s: dict[str, Any]) -> Tensor | None:
    lengths = i["context_lens"]
    return _paged({**i, "context_lens": lengths.max().expand_as(lengths)}) if (lengths != lengths[0]).any() else None


def _lengths_in_blocks(i: Inputs, s: dict[str, Any]) -> Tensor:
    """Every length is taken to fill its last block."""
    size = s["block_size"]
    return _paged({**i, "context_lens": (i["context_lens"] + size - 1) // size * size})


def _no_tokens_taken_for_one(i: Inputs, s: dict[str, Any]) -> Tensor | None:
    lengths = i["context_lens"]
    return _paged({**i, "context_lens": lengths.clamp(min=1)}) if (lengths == 0).any() else None


WRONG_ON_CORNERS: dict[tuple[str, str], Candidate] = {
    ("ragged", "lengths ignored"): _lengths_ignored,
    ("tail", "lengths ignored"): _lengths_ignored,
    ("one_token", "lengths ignored"): _lengths_ignored,
    ("empty", "lengths ignored"): _lengths_ignored,
    ("ragged_full", "lengths ignored"): _lengths_ignored,
    ("ragged_full", "the longest length for all"): _longest_for_all,
    ("ragged_full", "lengths in blocks"): _lengths_in_blocks,
    ("ragged_full", "no tokens taken for one"): _no_tokens_taken_for_one,
}


def _without_maximum(i: Inputs, s: dict[str, Any]) -> Tensor | None:
    k, v = _gather(i)
    p = _logits(i, k).exp()
    p = p / p.sum(-1, keepdim=True)
    return (p.unsqueeze(2) @ v).squeeze(2).to(i["query"].dtype) if p.isnan().any() else None


def _zero_queries_skipped(i: Inputs, s: dict[str, Any]) -> Tensor | None:
    zero = (i["query"] == 0).all(-1, keepdim=True)
    return _paged(i).masked_fill(zero, 0.0) if zero.any() else None


SPECIAL: dict[str, Candidate] = {
    "maximum not taken off": _without_maximum,
    "zero queries skipped": _zero_queries_skipped,
}
