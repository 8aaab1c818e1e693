"""Wrong answers that `mla_decode_attention` must refuse, and right ones by another way that it must take."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor

from roofmark.operators.zoo import Candidate, fp8, significant

BF16 = torch.bfloat16
LOG2E = 1.4426950408889634
ROWS = ()

Inputs = Mapping[str, Tensor]
Sizes = dict[str, Any]
Mix = Callable[[Tensor, Tensor], Tensor]


def _softmax(logits: Tensor, v: Tensor) -> Tensor:
    return logits.softmax(-1) @ v


def _same(q: Tensor, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    return q, k, v


def _attend(
    i: Inputs,
    s: Sizes,
    *,
    tokens: Callable[[int, int], slice] = slice,
    mix: Mix = _softmax,
    of: Callable[[Tensor, Tensor, Tensor], tuple[Tensor, Tensor, Tensor]] = _same,
    scale: float = 576**-0.5,
    wide: torch.dtype = torch.float32,
) -> Tensor:
    """The answer in `wide`, one sequence after the other, with its tokens, how values mix, q, k and v changed."""
    rank = s["kv_lora_rank"]
    out = torch.zeros_like(i["q"][..., :rank])
    end = 0
    for b, length in enumerate(i["seq_lens"].tolist()):
        start, end = end, end + length
        latents = i["kv_buffer"][tokens(start, end), 0].to(wide)
        if len(latents):
            q, k, v = of(i["q"][b].to(wide), latents, latents[:, :rank])
            out[b] = mix(q @ k.T * scale, v).to(BF16)
    return out


# ---- which tokens ------------------------------------------------------------------------------


def _tokens(change: Callable[[int, int], slice]) -> Candidate:
    return lambda i, s: _attend(i, s, tokens=change)


def _next_sequence(i: Inputs, s: Sizes) -> Tensor | None:
    if s["batch_size"] == 1:
        return None
    return _attend({**i, "q": i["q"].roll(1, 0)}, s).roll(-1, 0)


# ---- what of them ------------------------------------------------------------------------------


def _of(change: Callable[[Tensor, Tensor, Tensor], tuple[Tensor, Tensor, Tensor]]) -> Candidate:
    return lambda i, s: _attend(i, s, of=change)


def _uniform(logits: Tensor, v: Tensor) -> Tensor:
    return v.mean(0).expand(len(logits), -1)


def _largest_alone(logits: Tensor, v: Tensor) -> Tensor:
    return v[logits.argmax(-1)]


def _without_maximum(logits: Tensor, v: Tensor) -> Tensor:
    p = logits.exp()
    return p / p.sum(-1, keepdim=True) @ v


def _unnormalised(logits: Tensor, v: Tensor) -> Tensor:
    return (logits - logits.amax(-1, keepdim=True)).exp() @ v


def _split(logits: Tensor, v: Tensor, *, weighed: bool = True, stored: torch.dtype = torch.float32) -> Tensor:
    """Four parts of the tokens apart, p in bfloat16, then put together by their sums: as deployed kernels do."""
    size = -(-logits.shape[-1] // 4)
    made, sums = [], []
    for part, values in zip(torch.split(logits, size, -1), torch.split(v, size), strict=True):
        p = torch.exp2((part - part.amax(-1, keepdim=True)) * LOG2E)
        made.append((p.to(BF16).float() @ values / p.sum(-1, keepdim=True)).to(stored))
        sums.append(part.logsumexp(-1) if weighed else torch.zeros_like(part[:, 0]))
    shares = torch.stack(sums).softmax(0)
    return (torch.stack(made).float() * shares.unsqueeze(-1)).sum(0)


def _online(logits: Tensor, v: Tensor) -> Tensor:
    """Tile by tile from the last to the first, what was summed shrunk whenever a larger logit comes."""
    top, total, out = logits[:, -1:] - 1, torch.zeros(len(logits), 1), torch.zeros(len(logits), v.shape[-1])
    for part, values in reversed(list(zip(torch.split(logits, 32, -1), torch.split(v, 32), strict=True))):
        new = torch.maximum(top, part.amax(-1, keepdim=True))
        p, shrink = (part - new).exp(), (top - new).exp()
        total, out, top = total * shrink + p.sum(-1, keepdim=True), out * shrink + p @ values, new
    return out / total


def _mixes(mix: Mix) -> Candidate:
    return lambda i, s: _attend(i, s, mix=mix)


def _p_in_fp8(logits: Tensor, v: Tensor) -> Tensor:
    p = (logits - logits.amax(-1, keepdim=True)).exp()
    return fp8(p) @ v / p.sum(-1, keepdim=True)


WRONG: dict[str, Candidate] = {
    "last token left out": _tokens(lambda start, end: slice(start, end - 1)),
    "first token left out": _tokens(lambda start, end: slice(start + 1, end)),
    "last tile left out": _tokens(lambda start, end: slice(start, start + (end - start - 1) // 16 * 16)),
    "first half alone": _tokens(lambda start, end: slice(start, (start + end) // 2)),
    "window": _tokens(lambda start, end: slice((start + end) // 2, end)),
    "every other token": _tokens(lambda start, end: slice(start, end, 2)),
    "first sequence for all": lambda i, s: (
        _attend(i, s, tokens=lambda start, end: slice(0, end - start)) if s["batch_size"] > 1 else None
    ),
    "next sequence": _next_sequence,
    "no rope": _of(lambda q, k, v: (q[:, :512], k[:, :512], v)),
    "rope alone": _of(lambda q, k, v: (q[:, 512:], k[:, 512:], v)),
    "values behind the rope": _of(lambda q, k, v: (q, k, k[:, 64:])),
    "rope taken for the first": _of(lambda q, k, v: (q.roll(64, 1), k, v)),
    "half of the rank": _of(lambda q, k, v: (q[:, 256:], k[:, 256:], v)),
    "next head": _of(lambda q, k, v: (q.roll(1, 0), k, v)),
    "first head for all": _of(lambda q, k, v: (q[:1].expand_as(q), k, v)),
    "values of the next token": _of(lambda q, k, v: (q, k, v.roll(-1, 0))),
    "no scale": lambda i, s: _attend(i, s, scale=1.0),
    "scale of the rank": lambda i, s: _attend(i, s, scale=512**-0.5),
    "scale before absorption": lambda i, s: _attend(i, s, scale=192**-0.5),
    "scale 1 / d": lambda i, s: _attend(i, s, scale=1 / 576),
    "base 2": lambda i, s: _attend(i, s, scale=576**-0.5 / LOG2E),
    "mean of values": _mixes(_uniform),
    "largest key alone": _mixes(_largest_alone),
    "no normaliser": _mixes(_unnormalised),
    "parts not weighed": _mixes(lambda lg, v: _split(lg, v, weighed=False)),
    "q in fp8": _of(lambda q, k, v: (fp8(q), k, v)),
    "latents in fp8": _of(lambda q, k, v: (q, fp8(k), fp8(v))),
    "p in fp8": _mixes(_p_in_fp8),
    "values of five bits": _of(lambda q, k, v: (q, k, significant(v, 5))),
}

RIGHT: dict[str, Candidate] = {
    "float64": lambda i, s: _attend(i, s, wide=torch.float64),
    "p in bf16": _mixes(lambda lg, v: lg.softmax(-1).to(BF16).float() @ v),
    "split": _mixes(_split),
    "online": _mixes(_online),
}


# ---- what only a corner case shows -------------------------------------------------------------


def _even(i: Inputs, s: Sizes) -> Tensor:
    """As many tokens for each sequence, whatever the lengths say."""
    count = len(i["seq_lens"])
    return _attend({**i, "seq_lens": torch.full((count,), len(i["kv_buffer"]) // count)}, s)


def _longest(i: Inputs, s: Sizes) -> Tensor:
    """The longest length for all, from where each begins."""
    return _attend(i, s, tokens=lambda start, end: slice(start, start + int(i["seq_lens"].max())))


def _empty_not_written(i: Inputs, s: Sizes) -> Tensor:
    out = _attend(i, s)
    return out.masked_fill(i["seq_lens"].view(-1, 1, 1) == 0, torch.nan)


WRONG_ON_CORNERS: dict[tuple[str, str], Candidate] = {
    ("ragged", "lengths ignored"): _even,
    ("empty", "lengths ignored"): _even,
    ("ragged", "longest for all"): _longest,
    ("empty", "longest for all"): _longest,
    ("empty", "no rows written"): _empty_not_written,
    ("sharp", "maximum not taken off"): _mixes(_without_maximum),
    ("sharp", "logits in bf16"): _mixes(lambda lg, v: _softmax(lg.to(BF16).float(), v)),
    ("equal_keys", "one of equal keys"): _mixes(_largest_alone),
}


# ---- what only special rows show ---------------------------------------------------------------


def _overflow(i: Inputs, s: Sizes) -> Tensor | None:
    out = _attend(i, s, mix=_without_maximum)
    return out if out.isnan().any() else None


def _zero_queries_skipped(i: Inputs, s: Sizes) -> Tensor | None:
    zero = (i["q"] == 0).all(-1, keepdim=True)
    return _attend(i, s).masked_fill(zero, 0.0) if zero.any() else None


SPECIAL: dict[str, Candidate] = {
    "maximum not taken off": _overflow,
    "zero queries skipped": _zero_queries_skipped,
}
