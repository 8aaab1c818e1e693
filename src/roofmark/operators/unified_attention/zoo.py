"""Wrong answers that `unified_attention` must refuse, and right ones by another way that it must take."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor

from roofmark.operators.draw import chunks
from roofmark.operators.zoo import Candidate, fp8, significant

BF16 = torch.bfloat16
LOG2E = 1.4426950408889634
ROWS = ()

Inputs = Mapping[str, Tensor]
Sizes = dict[str, Any]
See = Callable[[Tensor, Tensor, int], Tensor]
Mix = Callable[[Tensor, Tensor], Tensor]


def _causal(token: Tensor, own: Tensor, tokens: int) -> Tensor:
    """Whether the row whose own token is `own` [rows, 1] sees `token` [tokens]."""
    return token <= own


def _softmax(logits: Tensor, v: Tensor) -> Tensor:
    return torch.softmax(logits, -1).nan_to_num() @ v


def _same(q: Tensor, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    return q, k, v


def _attend(
    i: Inputs,
    *,
    see: See = _causal,
    mix: Mix = _softmax,
    of: Callable[[Tensor, Tensor, Tensor], tuple[Tensor, Tensor, Tensor]] = _same,
    times: float = 1.0,
    wide: torch.dtype = torch.float32,
) -> Tensor:
    """The answer in `wide`, one sequence after the other, with what a row sees, how values mix, q, k and v changed.

    q is [hk, group, rows, d], k and v are [hk, 1, tokens, d]; the logits have `times` the right scale.
    """
    out = torch.zeros_like(i["q"])
    bounds = i["cu_seqlens_q"].tolist()
    block_size, hk, d = i["key_cache"].shape[1:]
    for s, tokens in enumerate(i["seqused_k"].tolist()):
        rows = bounds[s + 1] - bounds[s]
        if not rows:
            continue
        blocks = i["block_table"][s, : -(-tokens // block_size)].long()
        q = i["q"][bounds[s] : bounds[s + 1]].to(wide).view(rows, hk, -1, d).permute(1, 2, 0, 3)
        k, v = (
            i[name][blocks].flatten(0, 1)[:tokens].to(wide).transpose(0, 1) for name in ("key_cache", "value_cache")
        )
        q, k, v = of(q, k.unsqueeze(1), v.unsqueeze(1))
        own = torch.arange(tokens - rows, tokens, device=q.device).unsqueeze(1)
        token = torch.arange(tokens, device=q.device)
        for part in chunks(rows, 4 * tokens * out.shape[1], budget=1 << 23):
            seen = see(token, own[part], tokens).expand(-1, tokens)
            few = slice(0, max(1, int((seen.any(0) * (token + 1)).amax())))  # behind it nothing is seen
            logits = q[:, :, part] @ k[:, :, few].transpose(-1, -2) * (times * d**-0.5)
            mixed = mix(logits.masked_fill_(~seen[:, few], -torch.inf), v[:, :, few])
            mixed = mixed.permute(2, 0, 1, 3).flatten(1, 2)
            out[bounds[s] + part.start : bounds[s] + part.stop] = mixed.to(BF16)
    return out


# ---- what a row sees ---------------------------------------------------------------------------


def _sees(see: See) -> Candidate:
    """Rows that see other tokens; None where all are decodes that see the same ones."""

    def candidate(i: Inputs, s: Sizes) -> Tensor | None:
        if len(i["q"]) == (i["cu_seqlens_q"].diff() > 0).sum():
            asked = (i["cu_seqlens_q"].diff() > 0).nonzero().flatten()
            if all(_alike(see, tokens, i["q"].device) for tokens in i["seqused_k"][asked].tolist()):
                return None
        return _attend(i, see=see)

    return candidate


def _alike(see: See, tokens: int, device: torch.device) -> bool:
    """Whether a sequence's last row sees all of its tokens."""
    token, own = torch.arange(tokens, device=device), torch.full((1, 1), tokens - 1, device=device)
    return bool(see(token, own, tokens).all())


def _past_the_end(i: Inputs, s: Sizes) -> Tensor | None:
    """The slot behind the last token is taken for one, where its block has room."""
    room = (i["seqused_k"] % s["block_size"] > 0) & (i["cu_seqlens_q"].diff() > 0)
    return _attend({**i, "seqused_k": i["seqused_k"] + room.int()}) if room.any() else None


def _table_in_order(i: Inputs, s: Sizes) -> Tensor:
    table = i["block_table"]
    order = torch.arange(table.numel(), device=table.device, dtype=table.dtype) % len(i["key_cache"])
    return _attend({**i, "block_table": order.view(table.shape)})


def _first_block_twice(i: Inputs, s: Sizes) -> Tensor | None:
    table = i["block_table"].clone()
    table[:, -1] = table[:, 0]
    return _attend({**i, "block_table": table}) if table.shape[1] > 1 else None


def _blocks_swapped(i: Inputs, s: Sizes) -> Tensor | None:
    """The last block before the others: the mask and the tail make that a mistake."""
    whole = len(i["q"]) == s["num_seqs"] == 1 and int(i["seqused_k"]) % s["block_size"] == 0
    if whole or i["block_table"].shape[1] == 1:
        return None
    return _attend({**i, "block_table": i["block_table"].roll(1, 1)})


def _next_table(i: Inputs, s: Sizes) -> Tensor | None:
    return _attend({**i, "block_table": i["block_table"].roll(1, 0)}) if s["num_seqs"] > 1 else None


def _one_table(i: Inputs, s: Sizes) -> Tensor | None:
    table = i["block_table"][:1].expand_as(i["block_table"])
    return _attend({**i, "block_table": table}) if s["num_seqs"] > 1 else None


# ---- which heads -------------------------------------------------------------------------------


def _heads(change: Callable[[Tensor], Tensor], *, names: tuple[str, ...] = ("key_cache", "value_cache")) -> Candidate:
    """The heads of the caches changed by `change`; None where there is one."""

    def candidate(i: Inputs, s: Sizes) -> Tensor | None:
        if s["num_kv_heads"] == 1:
            return None
        return _attend({**i, **{name: change(i[name]) for name in names}})

    return candidate


def _by_remainder(i: Inputs, s: Sizes) -> Tensor | None:
    """Query head h on kv head h % hk instead of h // (hq / hk)."""
    hq, hk = s["num_query_heads"], s["num_kv_heads"]
    if hk in (1, hq):
        return None
    order = torch.arange(hq, device=i["q"].device).view(-1, hk).T.flatten()
    return _attend({**i, "q": i["q"][:, order]})[:, order.argsort()]


def _one_query_head(i: Inputs, s: Sizes) -> Tensor | None:
    """The first query head of a group for all of it."""
    if s["num_query_heads"] == s["num_kv_heads"]:
        return None
    return _attend(i, of=lambda q, k, v: (q[:, :1].expand_as(q), k, v))


def _layout_misread(i: Inputs, s: Sizes) -> Tensor | None:
    """The caches taken for [block, head, slot, d]."""
    if s["num_kv_heads"] == 1:
        return None
    blocks, slots, heads, d = i["key_cache"].shape
    misread = {name: i[name].view(blocks, heads, slots, d).transpose(1, 2) for name in CACHES}
    return _attend({**i, **misread})


CACHES = ("key_cache", "value_cache")


# ---- how values mix ----------------------------------------------------------------------------


def _uniform(logits: Tensor, v: Tensor) -> Tensor:
    return _softmax(torch.where(logits.isinf(), logits, 0.0), v)


def _largest_alone(logits: Tensor, v: Tensor) -> Tensor:
    return torch.zeros_like(logits).scatter_(-1, logits.argmax(-1, keepdim=True), 1.0) @ v


def _without_maximum(logits: Tensor, v: Tensor) -> Tensor:
    p = logits.exp()
    return p / p.sum(-1, keepdim=True) @ v


def _unnormalised(logits: Tensor, v: Tensor) -> Tensor:
    return (logits - logits.amax(-1, keepdim=True)).exp() @ v


def _in_fp16(logits: Tensor, v: Tensor) -> Tensor:
    """p and v in fp16, summed in float32."""
    return logits.softmax(-1).half().float() @ v.half().float()


def _tiles(logits: Tensor, v: Tensor, *, backwards: bool = False, shrinks: bool = True) -> Tensor:
    """Tile by tile in base 2 with p in bfloat16, as fused kernels do; wrong where what was summed does not shrink."""
    top = torch.full_like(logits[..., :1], -torch.inf)
    total, out = torch.zeros_like(top), torch.zeros(*logits.shape[:-1], v.shape[-1], device=v.device)
    parts = list(zip(torch.split(logits, 48, -1), torch.split(v, 48, -2), strict=True))
    for part, values in reversed(parts) if backwards else parts:
        new = torch.maximum(top, part.amax(-1, keepdim=True))
        base = new.clamp(min=-1e30)
        p, shrink = torch.exp2((part - base) * LOG2E), torch.exp2((top - base) * LOG2E)
        if not shrinks:
            shrink = torch.ones_like(shrink)
        total = total * shrink + p.sum(-1, keepdim=True)
        out = out * shrink + p.to(BF16).float() @ values
        top = new
    return out / total


def _split(logits: Tensor, v: Tensor, *, weighed: bool = True) -> Tensor:
    """Three parts of the tokens apart, then put together by their sums: as kernels for decodes do."""
    size = -(-logits.shape[-1] // 3)
    parts = list(zip(torch.split(logits, size, -1), torch.split(v, size, -2), strict=True))
    sums = torch.cat([part.logsumexp(-1, keepdim=True) for part, _ in parts], -1)
    shares = sums.softmax(-1) if weighed else (~sums.isinf()).float() / (~sums.isinf()).sum(-1, keepdim=True)
    made = [_softmax(part, values) for part, values in parts]
    return sum((shares[..., n : n + 1] * one for n, one in enumerate(made)), torch.zeros_like(made[0]))


def _mixes(mix: Mix) -> Candidate:
    return lambda i, s: _attend(i, mix=mix)


WRONG: dict[str, Candidate] = {
    "not causal": _sees(lambda token, own, tokens: (token < tokens) & (own >= 0)),
    "own token left out": _sees(lambda token, own, tokens: (token < own) | (own == 0)),
    "one token too many": _sees(lambda token, own, tokens: token <= own + 1),
    "one slot past the end": _past_the_end,
    "first token left out": _sees(lambda token, own, tokens: (token <= own) & ((token > 0) | (own == 0))),
    "window": _sees(lambda token, own, tokens: (token <= own) & (token > own - max(1, tokens // 2))),
    "first half alone": _sees(lambda token, own, tokens: (token <= own) & (token <= tokens // 2)),
    "last token left out": _sees(lambda token, own, tokens: (token <= own) & (token < max(1, tokens - 1))),
    "last block left out": _sees(lambda token, own, tokens: (token <= own) & (token < max(1, (tokens - 1) // 16 * 16))),
    "whole tiles alone": _sees(lambda token, own, tokens: (token <= own) & (token < (own + 1) // 4 * 4)),
    "every other token": _sees(lambda token, own, tokens: (token <= own) & ((own - token) % 2 == 0)),
    "table ignored": _table_in_order,
    "first block twice": _first_block_twice,
    "blocks rolled": _blocks_swapped,
    "next sequence's table": _next_table,
    "first sequence's table": _one_table,
    "next head's keys": _heads(lambda x: x.roll(1, 2), names=CACHES[:1]),
    "next head's values": _heads(lambda x: x.roll(1, 2), names=CACHES[1:]),
    "first kv head": _heads(lambda x: x[:, :, :1].expand_as(x)),
    "kv head by remainder": _by_remainder,
    "one query head of a group": _one_query_head,
    "layout misread": _layout_misread,
    "caches swapped": lambda i, s: _attend(i, of=lambda q, k, v: (q, v, k)),
    "values for keys": lambda i, s: _attend(i, of=lambda q, k, v: (q, v, v)),
    "keys for values": lambda i, s: _attend(i, of=lambda q, k, v: (q, k, k)),
    "half of d": lambda i, s: _attend(
        i, of=lambda q, k, v: (q[..., : s["head_size"] // 2], k[..., : k.shape[-1] // 2], v)
    ),
    "last 8 of d left out": lambda i, s: _attend(i, of=lambda q, k, v: (q[..., :-8], k[..., :-8], v)),
    "no scale": lambda i, s: _attend(i, times=s["head_size"] ** 0.5),
    "scale 1 / d": lambda i, s: _attend(i, times=s["head_size"] ** -0.5),
    "base 2": lambda i, s: _attend(i, times=1 / LOG2E),
    "mean of values": _mixes(_uniform),
    "largest key alone": _mixes(_largest_alone),
    "no normaliser": _mixes(_unnormalised),
    "sums do not shrink": lambda i, s: (
        _attend(i, mix=lambda lg, v: _tiles(lg, v, shrinks=False)) if max(i["seqused_k"]) > 48 else None
    ),
    "parts not weighed": _mixes(lambda lg, v: _split(lg, v, weighed=False)),
    "q in fp8": lambda i, s: _attend(i, of=lambda q, k, v: (fp8(q), k, v)),
    "keys in fp8": lambda i, s: _attend(i, of=lambda q, k, v: (q, fp8(k), v)),
    "values in fp8": lambda i, s: _attend(i, of=lambda q, k, v: (q, k, fp8(v))),
    "p in fp8": _mixes(lambda lg, v: fp8((lg - lg.amax(-1, keepdim=True)).exp()) @ v / _sum(lg)),
    "values of five bits": lambda i, s: _attend(i, of=lambda q, k, v: (q, k, significant(v, 5))),
    "p of five bits": _mixes(lambda lg, v: significant(lg.softmax(-1), 5) @ v),
}


def _sum(logits: Tensor) -> Tensor:
    return (logits - logits.amax(-1, keepdim=True)).exp().sum(-1, keepdim=True)


RIGHT: dict[str, Candidate] = {
    "online": _mixes(_tiles),
    "online, last tile first": _mixes(lambda lg, v: _tiles(lg, v, backwards=True)),
    "split": _mixes(_split),
    "float64": lambda i, s: _attend(i, wide=torch.float64),
    "p in bf16": _mixes(lambda lg, v: lg.softmax(-1).to(BF16).float() @ v),
}


# ---- what only a corner case shows -------------------------------------------------------------


def _top_left(token: Tensor, own: Tensor, tokens: int) -> Tensor:
    """Rows taken for the first of their sequence's tokens."""
    return token <= own - (own[:1] if len(own) else 0)


def _lengths(change: Callable[[Inputs], Tensor]) -> Candidate:
    return lambda i, s: _attend({**i, "seqused_k": change(i)})


def _prompts(i: Inputs) -> Tensor:
    return i["cu_seqlens_q"].diff()


def _whole_table(i: Inputs) -> Tensor:
    return torch.full_like(i["seqused_k"], i["block_table"].shape[1] * i["key_cache"].shape[1])


def _whole_blocks(i: Inputs) -> Tensor:
    size = i["key_cache"].shape[1]
    return (i["seqused_k"] + size - 1) // size * size


def _longest(i: Inputs) -> Tensor:
    return torch.full_like(i["seqused_k"], int(i["seqused_k"].max()))


def _even_rows(i: Inputs, s: Sizes) -> Tensor:
    """As many rows for each sequence, whatever the bounds say."""
    count = len(i["seqused_k"])
    even = torch.arange(count + 1, device=i["q"].device) * len(i["q"]) // count
    return _attend({**i, "cu_seqlens_q": even, "seqused_k": torch.maximum(i["seqused_k"], even.diff())})


def _first_seen(logits: Tensor, v: Tensor) -> Tensor:
    """The first key alone: right where all are equal only for those who know the values."""
    return v[..., :1, :].expand(*logits.shape[:-1], v.shape[-1])


WRONG_ON_CORNERS: dict[tuple[str, str], Candidate] = {
    **{(c, "aligned top left"): _sees(_top_left) for c in ("decode", "long_decode", "chunks", "long_chunk", "mixed")},
    **{(c, "all taken for prompts"): _lengths(_prompts) for c in ("decode", "chunks", "mixed", "shared_blocks")},
    **{(c, "lengths ignored"): _lengths(_whole_table) for c in ("one_token", "ones", "decode", "ragged", "tail")},
    **{(c, "lengths of whole blocks"): _lengths(_whole_blocks) for c in ("mixed", "chunks", "blocks", "long_decode")},
    **{(c, "longest for all"): _lengths(_longest) for c in ("decode", "ragged", "mixed", "blocks", "empty")},
    **{(c, "bounds ignored"): _even_rows for c in ("ragged", "mixed", "chunks", "empty", "blocks")},
    ("equal_keys", "one of equal keys"): _mixes(_largest_alone),
    ("equal_keys", "first key"): _mixes(_first_seen),
    ("sharp", "maximum not taken off"): _mixes(_without_maximum),
    ("sharp", "logits in bf16"): _mixes(lambda lg, v: _softmax(lg.to(BF16).float(), v)),
    ("large", "fp16 inside"): _mixes(_in_fp16),
}


# ---- what only special rows show ---------------------------------------------------------------


def _overflow(i: Inputs, s: Sizes) -> Tensor | None:
    out = _attend(i, mix=_without_maximum)
    return out if out.isnan().any() else None


def _zero_queries_skipped(i: Inputs, s: Sizes) -> Tensor | None:
    zero = (i["q"] == 0).all(-1, keepdim=True)
    return _attend(i).masked_fill(zero, 0.0) if zero.any() else None


SPECIAL: dict[str, Candidate] = {
    "maximum not taken off": _overflow,
    "zero queries skipped": _zero_queries_skipped,
}
