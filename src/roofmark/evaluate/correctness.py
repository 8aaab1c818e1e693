"""Gate 2: are the outputs right? Compared row by row with an oracle, by the paper's tolerance and the operator's."""

from __future__ import annotations

import math
import random
from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from roofmark.operators import Operator, Sizes
from roofmark.operators.expected import Expected
from roofmark.records import Status, Work

ABSOLUTE, RELATIVE = 1e-2, 5e-2  # the paper's tolerance, arXiv 2607.14541
CHUNK_ELEMENTS = {"cpu": 1 << 18, "cuda": 1 << 22}  # what a CPU's L2 holds, what keeps a GPU busy
FULL_CHECK_FLOPS = {"cpu": 4e9, "cuda": 2e12}
FULL_CHECK_BYTES = {"cpu": 1 << 28, "cuda": 1 << 33}
SAMPLE_ROWS = 256


@dataclass(frozen=True)
class Finding:
    """What is wrong with an answer, for the verdict."""

    status: Status
    message: str


@dataclass(frozen=True)
class Check:
    """What a comparison said: a finding, and the largest error as a share of what was allowed."""

    finding: Finding | None
    error_ratio: float


def choose_rows(rows: int, work: Work, device: str, rng: random.Random, *, thorough: bool) -> Tensor | None:
    """The rows to check, chosen after the answer: None for all, where that is affordable and asked for."""
    cost = max(sum(work.flops.values()) / FULL_CHECK_FLOPS[device], work.bytes_total / FULL_CHECK_BYTES[device])
    affordable = int(rows / max(cost, 1e-9))
    if rows <= SAMPLE_ROWS or (thorough and affordable >= rows):
        return None
    count = max(SAMPLE_ROWS, min(affordable, rows // 2)) if thorough else SAMPLE_ROWS
    picked = set(rng.sample(range(rows), min(count, rows))) | {0, rows - 1, rows // 2}
    return torch.tensor(sorted(picked), dtype=torch.int64)


def check_outputs(
    operator: Operator, inputs: Mapping[str, Tensor], sizes: Sizes, outputs: Mapping[str, Tensor],
    rows: Tensor | None,
) -> Check:  # fmt: skip
    """Whether the rows (None: all) of `outputs` are right; memory stays at a small multiple of a chunk.

    Rows are those of the first output; `Operator.rows_of` says which of the others belong to them. Where an
    operator is `whole`, all rows are looked at, in one piece.
    """
    first = next(iter(outputs.values()))
    index = torch.arange(first.shape[0]) if rows is None or operator.whole else rows
    index = index.to(first.device)
    every = operator.rows_of(sizes, index)
    elements = max(len(every[name]) * out[:1].numel() for name, out in outputs.items())
    parts = 1 if operator.whole else math.ceil(elements / CHUNK_ELEMENTS[first.device.type])
    step = math.ceil(len(index) / max(parts, 1))
    worst = 0.0
    for part in torch.split(index, max(step, 1)):
        places = operator.rows_of(sizes, part)
        chosen = {name: out.index_select(0, places[name]) for name, out in outputs.items()}
        said = operator.judge_rows(inputs, sizes, part, chosen)
        if said is not None:
            if said:
                return Check(Finding(_judge_status(chosen, said), said), float("inf"))
            continue
        expected = operator.expected_rows(inputs, sizes, part)
        for name, out in chosen.items():
            finding, ratio = compare(name, out, expected[name], places[name])
            worst = max(worst, ratio)
            if finding is not None:
                return Check(finding, worst)
    return Check(None, worst)


def _judge_status(outputs: Mapping[str, Tensor], said: str) -> Status:
    strange = any(out.is_floating_point() and bool(out.isnan().any()) for out in outputs.values())
    return Status.NOT_FINITE if strange or "not finite" in said else Status.WRONG_VALUES


def compare(name: str, out: Tensor, expected: Expected, index: Tensor) -> tuple[Finding | None, float]:
    """A finding, or None, and the largest error as a share of what was allowed, up to where the finding is.

    Finite exactly where the expected value is, infinities in place and of the same sign. Piece by piece, so that
    a row that is large needs no more memory and what lies between stays in the cache.
    """
    got, value = out.reshape(-1), expected.value.reshape(-1)
    bound = None if expected.bound is None else expected.bound.reshape(-1)
    step, worst = CHUNK_ELEMENTS[out.device.type], 0.0
    for start in range(0, len(got), step):
        piece = slice(start, start + step)
        if bound is None:
            status, wrong, ratio = _unequal(got[piece], value[piece])
        else:
            status, wrong, ratio = _apart(got[piece], value[piece], bound[piece], alone=expected.replaces_tolerance)
        worst = max(worst, ratio)
        if wrong is not None:
            return _tell(name, out, expected.value, wrong, start, index, status), worst
    return None, worst


def _unequal(out: Tensor, value: Tensor) -> tuple[Status, Tensor | None, float]:
    """Where values differ that must not; None where none does."""
    wrong = out != value.to(out.dtype)
    if bool(wrong.any()):
        return Status.WRONG_VALUES, wrong, float("inf")
    return Status.OK, None, 0.0


def _apart(out: Tensor, value: Tensor, bound: Tensor, *, alone: bool) -> tuple[Status, Tensor | None, float]:
    """Where values lie further apart than is allowed, or None, and the largest error as a share of that.

    `alone`: the bound stands alone, without the paper's tolerance.
    """
    got = out.to(torch.float64)
    if not bool((value.sum() + got.sum()).isfinite()):  # one value that is not finite makes the sum so
        finite = value.isfinite()
        out_of_place = torch.where(finite, ~got.isfinite(), (got != value) & ~(got.isnan() & value.isnan()))
        if bool(out_of_place.any()):
            return Status.NOT_FINITE, out_of_place, float("inf")
        zero = torch.zeros_like(value)
        got, value, bound = (torch.where(finite, t, zero) for t in (got, value, bound))
    # nobody is asked for more than the dtype can hold: below its normal numbers any answer near zero is right;
    # not so in fp8, where these are codes like all others
    least = torch.finfo(out.dtype if out.dtype.itemsize > 1 else torch.float64).tiny
    ratio_of = (got - value).abs_().div_(bound.clamp_min(least))
    if not alone:
        reference = value.to(out.dtype).to(torch.float64)
        allowed = reference.abs().mul_(RELATIVE).add_(ABSOLUTE)
        ratio_of = torch.maximum(ratio_of, (got - reference).abs_().div_(allowed))
    wrong = ~(ratio_of <= 1.0)  # a NaN in a bound is no licence
    worst = float(ratio_of.max()) if ratio_of.numel() else 0.0
    return Status.WRONG_VALUES, wrong if bool(wrong.any()) else None, worst


def _tell(name: str, out: Tensor, value: Tensor, wrong: Tensor, start: int, index: Tensor, status: Status) -> Finding:
    """The first wrong value in words; `wrong` is of a piece of the values that begins at `start`."""
    left, place = start + int(wrong.view(torch.uint8).argmax()), list[int]()
    for size in reversed(out.shape):
        left, at = divmod(left, size)
        place.insert(0, at)
    where = ", ".join(str(i) for i in (int(index[place[0]]), *place[1:]))
    got, want = (float(values[tuple(place)]) for values in (out, value))
    share = f"{int(wrong.sum())} of {wrong.numel()} values checked are wrong"
    text = f"{name}[{where}] is {got:.6g}, should be {want:.6g}; {share}"
    return Finding(status, text)
