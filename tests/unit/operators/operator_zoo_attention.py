"""Wrong and right answers of the two attention operators; see `operator_zoo`."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from operator_check import Candidate, Sizes
from torch import Tensor

BF16 = torch.bfloat16
Inputs = Mapping[str, Tensor]


def fp8(x: Tensor) -> Tensor:
    """`x` rounded to fp8 e4m3 and back."""
    return x.to(torch.float8_e4m3fn).to(x.dtype)


# ---- attention_forward -------------------------------------------------------------------------


def _heads(i: Inputs) -> tuple[Tensor, Tensor, Tensor]:
    q, k, v = (i[name].float().transpose(0, 1) for name in ("q", "k", "v"))
    return q, k, v


def _logits(i: Inputs) -> Tensor:
    q, k, _ = _heads(i)
    return q @ k.transpose(-1, -2) * q.shape[-1] ** -0.5


def _weigh(p: Tensor, i: Inputs) -> Tensor:
    return (p @ _heads(i)[2]).transpose(0, 1).to(BF16)


def _keys(i: Inputs, part: slice) -> Tensor | None:
    """Attention over some of the keys; None where those are all, or none."""
    if len(i["k"][part]) in (0, len(i["k"])):
        return None
    few = {**i, "k": i["k"][part], "v": i["v"][part]}
    return _weigh(_logits(few).softmax(-1), few)


def _several(i: Inputs, result: Tensor) -> Tensor | None:
    """`result`, unless there is one key, whose value is the right answer whatever the weights are."""
    return result if len(i["k"]) > 1 else None


def _one_key(i: Inputs) -> Tensor:
    logits = _logits(i)
    return _weigh(torch.zeros_like(logits).scatter(-1, logits.argmax(-1, keepdim=True), 1.0), i)


ATTENTION_FORWARD_WRONG: dict[str, Candidate] = {
    "q": lambda i, s: i["q"],
    "mean of v": lambda i, s: _several(i, i["v"].float().mean(0, keepdim=True).expand_as(i["q"]).to(BF16)),
    "no scale": lambda i, s: _several(i, _weigh((_logits(i) * s["head_dim"] ** 0.5).softmax(-1), i)),
    "scale 1 / d": lambda i, s: _several(i, _weigh((_logits(i) * s["head_dim"] ** -0.5).softmax(-1), i)),
    "first 64 keys": lambda i, s: _keys(i, slice(0, 64)),
    "last 64 keys": lambda i, s: _keys(i, slice(-64, None)),
    "last key left out": lambda i, s: _keys(i, slice(0, -1)),
    "last tile left out": lambda i, s: _keys(i, slice(0, len(i["k"]) // 64 * 64)),
    "one tile left out": lambda i, s: _keys(i, slice(64, None)),
    "largest key alone": lambda i, s: _several(i, _one_key(i)),
    "no normaliser": lambda i, s: _several(i, _weigh(_logits(i).exp() / len(i["k"]), i)),
    "next head's keys": lambda i, s: _several(i, _weigh(_logits({**i, "k": i["k"].roll(1, 1)}).softmax(-1), i)),
    "next head's values": lambda i, s: _weigh(_logits(i).softmax(-1), {**i, "v": i["v"].roll(1, 1)}),
    "p in fp8": lambda i, s: _several(i, _weigh(fp8(_logits(i).softmax(-1) * 256) / 256, i)),
    "q and k in fp8": lambda i, s: _several(
        i, _weigh(_logits({**i, "q": fp8(i["q"].float()), "k": fp8(i["k"].float())}).softmax(-1), i)
    ),
}


def _online(logits: Tensor, v: Tensor, tile: int) -> Tensor:
    """Softmax and product tile by tile, in base 2, with p rounded to v's type: as fused kernels do."""
    top = torch.full_like(logits[..., :1], -torch.inf)
    total, out = torch.zeros_like(top), torch.zeros(*logits.shape[:-1], v.shape[-1])
    for part, values in zip(logits.split(tile, -1), v.split(tile, -2), strict=True):
        new = torch.maximum(top, part.max(-1, keepdim=True).values)
        p = torch.exp2((part - new) * 1.4426950408889634)
        shrink = torch.exp2((top - new) * 1.4426950408889634)
        total = total * shrink + p.sum(-1, keepdim=True)
        out = out * shrink + p.to(v.dtype).float() @ values.float()
        top = new
    return (out / total).to(v.dtype)


ATTENTION_FORWARD_RIGHT: dict[str, Candidate] = {
    "online": lambda i, s: _online(_logits(i), i["v"].transpose(0, 1), 64).transpose(0, 1),
    "float32": lambda i, s: _weigh(_logits(i).softmax(-1), i),
    "p in bf16": lambda i, s: _weigh(_logits(i).softmax(-1).to(BF16).float(), i),
}


# ---- paged_attention_decode --------------------------------------------------------------------


def _gather(i: Inputs, group: Tensor | None = None) -> tuple[Tensor, Tensor]:
    """Keys and values [n, hq, tokens, d] in float32 for each query head."""
    n, hq, d = i["query"].shape
    hk = i["key_cache"].shape[1]
    blocks = i["block_tables"].long()
    k = i["key_cache"][blocks].float().permute(0, 2, 1, 4, 3, 5).reshape(n, hk, -1, d)
    v = i["value_cache"][blocks].float().permute(0, 2, 1, 4, 3).reshape(n, hk, -1, d)
    group = torch.arange(hq) // (hq // hk) if group is None else group
    return k[:, group], v[:, group]


def _paged_logits(i: Inputs, k: Tensor) -> Tensor:
    logits = (i["query"].float().unsqueeze(2) @ k.transpose(-1, -2)).squeeze(2) * k.shape[-1] ** -0.5
    beyond = torch.arange(k.shape[2]) >= i["context_lens"].view(-1, 1, 1)
    return logits.masked_fill(beyond, -torch.inf)


def _paged(i: Inputs, *, group: Tensor | None = None, times: float = 1.0) -> Tensor:
    k, v = _gather(i, group)
    p = (_paged_logits(i, k) * times).softmax(-1).unsqueeze(2)
    return (p @ v).squeeze(2).to(i["query"].dtype)


def _cut(i: Inputs, tokens: int) -> Inputs:
    return {**i, "context_lens": i["context_lens"].clamp(max=tokens)}


def _lengths_ignored(i: Inputs, s: Sizes) -> Tensor | None:
    full = i["block_tables"].shape[1] * s["block_size"]
    if (i["context_lens"] == full).all():
        return None
    return _paged({**i, "context_lens": torch.full_like(i["context_lens"], full)})


def _kv_head_by_remainder(i: Inputs, s: Sizes) -> Tensor | None:
    if s["num_kv_heads"] in (1, s["num_query_heads"]):
        return None
    return _paged(i, group=torch.arange(s["num_query_heads"]) % s["num_kv_heads"])


def _first_kv_head(i: Inputs, s: Sizes) -> Tensor | None:
    return _paged(i, group=torch.zeros(s["num_query_heads"], dtype=int)) if s["num_kv_heads"] > 1 else None


def _table_in_order(i: Inputs, s: Sizes) -> Tensor:
    table = i["block_tables"]
    return _paged({**i, "block_tables": torch.arange(table.numel()).view(table.shape).to(table.dtype)})


def _first_block_twice(i: Inputs, s: Sizes) -> Tensor:
    table = i["block_tables"].clone()
    table[:, -1] = table[:, 0]
    return _paged({**i, "block_tables": table})


def _uniform_weights(i: Inputs, s: Sizes) -> Tensor:
    return _paged({**i, "query": torch.zeros_like(i["query"])})


def _key_layout_misread(i: Inputs, s: Sizes) -> Tensor:
    key = i["key_cache"]
    return _paged({**i, "key_cache": key.flatten(2).view(*key.shape[:2], 16, -1, 8).transpose(2, 3).contiguous()})


PAGED_ATTENTION_DECODE_WRONG: dict[str, Candidate] = {
    "query": lambda i, s: i["query"],
    "table ignored": _table_in_order,
    "next sequence's table": lambda i, s: (
        _paged({**i, "block_tables": i["block_tables"].roll(1, 0)}) if len(i["query"]) > 1 else None
    ),
    "first block twice": _first_block_twice,
    "lengths ignored": _lengths_ignored,
    "first 16 tokens": lambda i, s: _paged(_cut(i, 16)),
    "last token left out": lambda i, s: _paged({**i, "context_lens": i["context_lens"] - 1}),
    "last block left out": lambda i, s: _paged(_cut(i, (s["ctx_len"] - 1) // 16 * 16)),
    "first kv head": _first_kv_head,
    "kv head by remainder": _kv_head_by_remainder,
    "no scale": lambda i, s: _paged(i, times=s["head_size"] ** 0.5),
    "scale 1 / d": lambda i, s: _paged(i, times=s["head_size"] ** -0.5),
    "mean of values": _uniform_weights,
    "keys misread": _key_layout_misread,
    "query in fp8": lambda i, s: _paged({**i, "query": fp8(i["query"].float()).to(i["query"].dtype)}),
}


def _paged_online(i: Inputs, s: Sizes) -> Tensor:
    k, v = _gather(i)
    out = _online(_paged_logits(i, k).unsqueeze(2), v.to(i["query"].dtype), 16)
    return out.squeeze(2)


PAGED_ATTENTION_DECODE_RIGHT: dict[str, Candidate] = {
    "online": _paged_online,
    "float32": lambda i, s: _paged(i),
}


def _bounds_ignored(i: Inputs, s: Sizes) -> Tensor | None:
    return _several(i, _weigh(_logits(i).softmax(-1), i))


def _attention_without_maximum(i: Inputs, s: Sizes) -> Tensor | None:
    p = _logits(i).exp()
    p = p / p.sum(-1, keepdim=True)
    return _weigh(p, i) if p.isnan().any() else None


def _zero_queries_skipped(i: Inputs, s: Sizes) -> Tensor | None:
    zero = (i["q"] == 0).all(-1, keepdim=True)
    return _weigh(_logits(i).softmax(-1), i).masked_fill(zero, 0.0) if zero.any() else None


def _paged_without_maximum(i: Inputs, s: Sizes) -> Tensor | None:
    k, v = _gather(i)
    p = _paged_logits(i, k).exp()
    p = p / p.sum(-1, keepdim=True)
    return (p.unsqueeze(2) @ v).squeeze(2).to(i["query"].dtype) if p.isnan().any() else None


def _paged_zero_queries_skipped(i: Inputs, s: Sizes) -> Tensor | None:
    zero = (i["query"] == 0).all(-1, keepdim=True)
    return _paged(i).masked_fill(zero, 0.0) if zero.any() else None


# Wrong on special heads of special rows alone, which every call of full size must hold; see `operator_zoo_special`.
ATTENTION_FORWARD_SPECIAL: dict[str, Candidate] = {
    "maximum not taken off": _attention_without_maximum,
    "zero queries skipped": _zero_queries_skipped,
}
PAGED_ATTENTION_DECODE_SPECIAL: dict[str, Candidate] = {
    "maximum not taken off": _paged_without_maximum,
    "zero queries skipped": _paged_zero_queries_skipped,
}


def _longest_for_all(i: Inputs, s: Sizes) -> Tensor:
    return _paged({**i, "context_lens": i["context_lens"].max().expand_as(i["context_lens"])})


def _lengths_in_blocks(i: Inputs, s: Sizes) -> Tensor:
    """Every length is taken to fill its last block."""
    size = s["block_size"]
    return _paged({**i, "context_lens": (i["context_lens"] + size - 1) // size * size})


def _no_tokens_taken_for_one(i: Inputs, s: Sizes) -> Tensor | None:
    lengths = i["context_lens"]
    return _paged({**i, "context_lens": lengths.clamp(min=1)}) if (lengths == 0).any() else None


# Mistakes that inputs of the published kind do not show.
ATTENTION_WRONG_ON_CORNERS: dict[tuple[str, str, str], Candidate] = {
    ("attention_forward", "ragged", "bounds ignored"): _bounds_ignored,
    ("attention_forward", "empty_sequences", "bounds ignored"): _bounds_ignored,
    ("attention_forward", "ragged_full", "bounds ignored"): _bounds_ignored,
    ("attention_forward", "sharp", "maximum not taken off"): _attention_without_maximum,
    ("paged_attention_decode", "ragged", "lengths ignored"): _lengths_ignored,
    ("paged_attention_decode", "tail", "lengths ignored"): _lengths_ignored,
    ("paged_attention_decode", "one_token", "lengths ignored"): _lengths_ignored,
    ("paged_attention_decode", "empty", "lengths ignored"): _lengths_ignored,
    ("paged_attention_decode", "ragged_full", "lengths ignored"): _lengths_ignored,
    ("paged_attention_decode", "ragged_full", "the longest length for all"): _longest_for_all,
    ("paged_attention_decode", "ragged_full", "lengths in blocks"): _lengths_in_blocks,
    ("paged_attention_decode", "ragged_full", "no tokens taken for one"): _no_tokens_taken_for_one,
}
