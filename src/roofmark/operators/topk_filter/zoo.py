"""Wrong answers that must fail, and right ones by another way that must pass."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from roofmark.operators.zoo import Candidate

Inputs = Mapping[str, Tensor]
Sizes = dict[str, Any]
TOP_K = 50

ROWS = ("logits",)


def _k(s: Sizes) -> int:
    return int(s.get("top_k", TOP_K))


def _keep(i: Inputs, kept: Tensor, other: float = -torch.inf) -> Tensor:
    return torch.where(kept, i["logits"], torch.full((), other))


def _least(x: Tensor, k: int) -> Tensor:
    """The k-th largest of each row."""
    return x.topk(k, dim=-1).values[:, -1:]


def _right(i: Inputs, s: Sizes) -> Tensor:
    return i["logits"] >= _least(i["logits"], _k(s))


def _by(i: Inputs, least: Tensor) -> Tensor:
    """Cut at a threshold of one's choice."""
    return _keep(i, i["logits"] >= least)


def _exactly(i: Inputs, k: int) -> Tensor:
    """k of a row, ties or not."""
    places = i["logits"].topk(k, dim=-1).indices
    return _keep(i, torch.zeros_like(i["logits"], dtype=torch.bool).scatter(1, places, True))


def _seen(i: Inputs, s: Sizes, count: int) -> Tensor:
    """Only the first columns are looked at; the rest is filled with -inf."""
    seen = i["logits"].clone()
    seen[:, count:] = -torch.inf
    return torch.where(seen >= _least(seen, _k(s)), seen, -torch.inf)


def _sampled(i: Inputs, s: Sizes, every: int) -> Tensor:
    """A threshold from some of the columns."""
    return _by(i, _least(i["logits"][:, ::every], max(_k(s) // every, 1)))


def _expected(i: Inputs, s: Sizes) -> Tensor:
    """The threshold that normal logits would have."""
    x = i["logits"].nan_to_num(neginf=0.0)
    share = torch.tensor(1 - _k(s) / x.shape[1])
    return _by(i, x.mean(-1, keepdim=True) + x.std(-1, keepdim=True) * torch.special.ndtri(share))


def _of_the_first_row(i: Inputs, s: Sizes) -> Tensor | None:
    return _by(i, _least(i["logits"][:1], _k(s))) if len(i["logits"]) > 1 else None


def _mean_threshold(i: Inputs, s: Sizes) -> Tensor | None:
    least = _least(i["logits"], _k(s))
    return _by(i, least.nan_to_num(neginf=0.0).mean()) if len(least) > 1 else None


def _of_each_tile(i: Inputs, s: Sizes, tile: int, few: int) -> Tensor:
    """The threshold of the largest few of each tile of columns."""
    x = i["logits"]
    padded = torch.nn.functional.pad(x, (0, -x.shape[1] % tile), value=-torch.inf)
    best = padded.view(len(x), -1, tile).topk(few, dim=-1).values.flatten(1)
    return _by(i, _least(best, min(_k(s), best.shape[1])))


def _histogram(i: Inputs, s: Sizes) -> Tensor:
    """A threshold to a 256th of the range."""
    x = i["logits"].nan_to_num(neginf=0.0)
    low, high = x.amin(-1, keepdim=True), x.amax(-1, keepdim=True)
    step = (high - low) / 256
    return _by(i, low + ((_least(x, _k(s)) - low) / step).floor() * step)


def _in(i: Inputs, s: Sizes, kind: torch.dtype) -> Tensor:
    """Compared in another type."""
    x = i["logits"].to(kind).float()
    return _keep(i, x >= _least(x, _k(s)))


WRONG: dict[str, Candidate] = {
    "one too few": lambda i, s: _by(i, _least(i["logits"], _k(s) - 1)),
    "one too many": lambda i, s: _by(i, _least(i["logits"], _k(s) + 1)),
    "more than the threshold": lambda i, s: _keep(i, i["logits"] > _least(i["logits"], _k(s))),
    "largest alone": lambda i, s: _by(i, _least(i["logits"], 1)),
    "first k columns": lambda i, s: _seen(i, s, _k(s)),
    "smallest k": lambda i, s: _keep(i, i["logits"] <= -_least(-i["logits"], _k(s))),
    "largest by size": lambda i, s: _keep(i, i["logits"].abs() >= _least(i["logits"].abs(), _k(s))) * -1,
    "half of the columns seen": lambda i, s: _seen(i, s, s["hidden_size"] // 2),
    "last sixteenth not seen": lambda i, s: _seen(i, s, s["hidden_size"] * 15 // 16),
    "last 16 columns not seen": lambda i, s: _seen(i, s, s["hidden_size"] - 16),
    "threshold of half of the columns": lambda i, s: _by(i, _least(i["logits"][:, : s["hidden_size"] // 2], _k(s))),
    "threshold of every other column": lambda i, s: _sampled(i, s, 2),
    "expected threshold": _expected,
    "threshold of the first row": _of_the_first_row,
    "mean threshold": _mean_threshold,
    "threshold to a 256th of the range": _histogram,
    "everything kept": lambda i, s: i["logits"].clone(),
    "0 for -inf": lambda i, s: _keep(i, _right(i, s), 0.0),
    "lowest number for -inf": lambda i, s: _keep(i, _right(i, s), torch.finfo(torch.float32).min),
    "inf for -inf": lambda i, s: _keep(i, _right(i, s), torch.inf),
    "mask the other way": lambda i, s: _keep(i, ~_right(i, s)),
    "ones for those kept": lambda i, s: torch.where(_right(i, s), 1.0, -torch.inf),
    "softmax of those kept": lambda i, s: _keep(i, _right(i, s)).softmax(-1),
    "less the largest": lambda i, s: _keep(i, _right(i, s)) - i["logits"].amax(-1, keepdim=True),
    "kept in bf16": lambda i, s: _keep(i, _right(i, s)).bfloat16().float(),
    "kept in tf32": lambda i, s: (_keep(i, _right(i, s)).view(torch.int32) & -8192).view(torch.float32),
    "compared in bf16": lambda i, s: _in(i, s, torch.bfloat16),
}


def _ordered(x: Tensor) -> Tensor:
    """Whole numbers in the order of floats; 0 and -0 differ."""
    bits = x.view(torch.int32).long()
    return torch.where(bits < 0, -(2**31) - 1 - bits, bits)


def _bisected(i: Inputs, s: Sizes) -> Tensor:
    """The threshold bit by bit, as whole numbers."""
    key = _ordered(i["logits"] + 0.0)
    low = torch.full_like(key[:, :1], -(2**31))
    for bit in reversed(range(32)):
        enough = (key >= low + 2**bit).sum(-1, keepdim=True) >= _k(s)
        low = torch.where(enough, low + 2**bit, low)
    return _keep(i, key >= low)


def _struck_out(i: Inputs, s: Sizes) -> Tensor:
    """Strikes out the largest until k are gone."""
    left = i["logits"].clone()
    least = left.amax(-1, keepdim=True)
    for _ in range(_k(s) - 1):
        left.scatter_(1, left.argmax(-1, keepdim=True), -torch.inf)
        least = left.amax(-1, keepdim=True)
    return _by(i, least)


RIGHT: dict[str, Candidate] = {
    "sorted": lambda i, s: _by(i, i["logits"].sort(dim=-1).values[:, -_k(s), None]),
    "bisected": _bisected,
    "struck out one by one": _struck_out,
    "of each tile": lambda i, s: _of_each_tile(i, s, 64, min(64, _k(s))),
    "in float64": lambda i, s: _in(i, s, torch.float64),
}


def _as_integers(i: Inputs, s: Sizes) -> Tensor:
    key = _ordered(i["logits"])
    return _keep(i, key >= _least(key, _k(s)))


def _masked_as_zero(i: Inputs, s: Sizes) -> Tensor:
    x = i["logits"].nan_to_num(neginf=0.0)
    return _keep(i, x >= _least(x, _k(s)))


def _lowest_for_masked(i: Inputs, s: Sizes) -> Tensor:
    """Where -inf is left of a row, it comes back as the lowest number."""
    return i["logits"].clamp(min=torch.finfo(torch.float32).min).where(_right(i, s), torch.full((), -torch.inf))


WRONG_ON_CORNERS: dict[tuple[str, str], Candidate] = {
    ("ties", "exactly k"): lambda i, s: _exactly(i, _k(s)),
    ("equal", "exactly k"): lambda i, s: _exactly(i, _k(s)),
    ("signed_zeros", "compared as integers"): _as_integers,
    ("signed_zeros", "exactly k"): lambda i, s: _exactly(i, _k(s)),
    ("clustered", "eight of each tile"): lambda i, s: _of_each_tile(i, s, 64, 8),
    ("rising", "a quarter of each tile of 64"): lambda i, s: _of_each_tile(i, s, 64, 16),
    ("falling", "a quarter of each tile of 64"): lambda i, s: _of_each_tile(i, s, 64, 16),
    ("masked", "-inf taken for 0"): _masked_as_zero,
    ("few", "lowest number for what is left of -inf"): _lowest_for_masked,
    ("few", "one of the few struck out"): lambda i, s: _exactly(i, _k(s) - 8),
    ("all_masked", "lowest number for what is left of -inf"): _lowest_for_masked,
    ("large", "compared in fp16"): lambda i, s: _in(i, s, torch.float16),
    ("small", "compared in fp16"): lambda i, s: _in(i, s, torch.float16),
}

SPECIAL: dict[str, Candidate] = {
    "exactly k": lambda i, s: _exactly(i, _k(s)),
    "eight of each tile": lambda i, s: _of_each_tile(i, s, 64, 8),
    "-inf taken for 0": _masked_as_zero,
    "lowest number for what is left of -inf": _lowest_for_masked,
}
