"""Wrong and right answers, which prove that an operator's judge tells the one from the other.

Each folder's `zoo.py` holds its own:

    ROWS: tuple[str, ...]           inputs with one row for each row of the first output; () where rows are coupled
    WRONG: dict[str, Candidate]     must fail on every shape
    RIGHT: dict[str, Candidate]     must pass on every shape and corner case
    WRONG_ON_CORNERS: dict[tuple[str, str], Candidate]    (corner, title): must fail on that corner case
    SPECIAL: dict[str, Candidate]   must fail where it shows: on special rows, which calls of many rows hold
    ROW_DIMS: dict[str, int]        inputs of ROWS whose rows lie in another dimension than the first, and in which
    TOLERANCES: tuple[str, ...]     constants of oracle.py by which `judge_rows` is lenient (only with a checker)
    FIXED: tuple[str, ...]          inputs of a floating type that are the same under every seed
    EXCUSED: dict[str, str]         built-in cases, by title, that don't apply, and why

The first four are needed. A candidate gets the inputs, those of ROWS cut down to some rows, and the sizes of the
whole; it returns those rows of every output, or all rows where ROWS is (). None: no mistake on these inputs.
It runs with the inputs' device as torch's default. `generic` makes the mistakes that any operator can meet.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from roofmark.errors import ProblemError
from roofmark.operators import Operator

Candidate = Callable[[Mapping[str, Tensor], dict[str, Any]], Tensor | tuple[Tensor, ...] | None]
Outputs = dict[str, Tensor]

INTEGERS = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}
TILE = 16


@dataclass(frozen=True)
class Zoo:
    """What an operator's `zoo.py` and `second.py` hold."""

    rows: tuple[str, ...]
    wrong: Mapping[str, Candidate]
    right: Mapping[str, Candidate]
    wrong_on_corners: Mapping[tuple[str, str], Candidate]
    special: Mapping[str, Candidate] = field(default_factory=dict)
    row_dims: Mapping[str, int] = field(default_factory=dict)
    tolerances: tuple[str, ...] = ()
    fixed: tuple[str, ...] = ()
    excused: Mapping[str, str] = field(default_factory=dict)
    second: Candidate | None = None


def load(operator: Operator) -> Zoo:
    """The zoo of an operator; `ProblemError` where it has none or its names are malformed."""
    module, second = operator.proof("zoo"), operator.proof("second")
    if module is None:
        raise ProblemError(f"{operator.folder} has no zoo.py", hint="roofmark.operators.zoo says what it holds")
    found: dict[str, Any] = {}
    for name, kind, needed in (
        ("ROWS", tuple, True), ("WRONG", dict, True), ("RIGHT", dict, True), ("WRONG_ON_CORNERS", dict, True),
        ("SPECIAL", dict, False), ("ROW_DIMS", dict, False), ("TOLERANCES", tuple, False), ("FIXED", tuple, False),
        ("EXCUSED", dict, False),
    ):  # fmt: skip
        value: Any = getattr(module, name, None if needed else kind())
        if not isinstance(value, kind):
            raise ProblemError(f"{operator.folder / 'zoo.py'} has no {name}, a {kind.__name__}")
        found[name.lower()] = value
    return Zoo(**found, second=None if second is None else second.second)


def significant(x: Tensor, bits: int) -> Tensor:
    """`x` rounded to this many significant bits, ties to even, in its own type: bfloat16 has 8, fp16 11, float32 24."""
    fraction, exponent = torch.frexp(x.float() if x.dtype.itemsize < 4 else x.double())
    return torch.ldexp(torch.round(fraction * 2.0**bits), exponent - bits).to(x.dtype)


def fp8(x: Tensor) -> Tensor:
    """`x` rounded to fp8 e4m3 and back."""
    return x.to(torch.float8_e4m3fn).to(x.dtype)


def generic(right: Mapping[str, Tensor], inputs: Mapping[str, Tensor]) -> Iterator[tuple[str, Outputs]]:
    """Wrong answers made from the right rows, one output spoilt at a time, with their titles.

    `inputs` are handed back where they fit. One copy of an output is held at a time.
    """
    for name, value in right.items():
        label = f"{name}: " if len(right) > 1 else ""
        for title, change in SPOILT.items():
            spoilt = change(value)
            if spoilt is not None:
                yield label + title, {**right, name: spoilt}
        for given, tensor in inputs.items():
            fitting = _fit(tensor, value)
            if fitting is not None:
                yield f"{label}input {given}", {**right, name: fitting}


def mixed(right: Mapping[str, Tensor], other: Mapping[str, Tensor], title: str) -> Iterator[tuple[str, Outputs]]:
    """The answer `other` for all outputs, and where there are several for one of them at a time, with titles."""
    yield title, dict(other)
    if len(right) > 1:
        for name in right:
            yield f"{name}: {title}", {**right, name: other[name]}


def _fit(given: Tensor, like: Tensor) -> Tensor | None:
    """`given`, its first rows and columns where it is larger, as an answer like `like`; None where it can't be."""
    if given.is_floating_point() != like.is_floating_point() or given.dim() > like.dim() or not given.dim():
        return None
    ends = like.shape[like.dim() - given.dim() :]
    if any(size < end for size, end in zip(given.shape, ends, strict=True)):
        return None
    cut = given[tuple(slice(0, end) for end in ends)]
    return _everywhere(cut.to(like.dtype), like)


def _bits(value: Tensor) -> Tensor:
    """A copy of `value` as integers of its size, which torch moves and zeroes whatever the type is."""
    return value.contiguous().clone().view(INTEGERS[value.dtype.itemsize])


def _cleared(value: Tensor, *place: Any) -> Tensor:
    """`value` with zeros at `place`."""
    bits = _bits(value)
    bits[place] = 0
    return bits.view(value.dtype)


def _shifted(value: Tensor, dim: int) -> Tensor:
    return _bits(value).roll(1, dim).view(value.dtype)


def _filled(value: Tensor, number: float) -> Tensor:
    return torch.full(value.shape, number, dtype=torch.float32, device=value.device).to(value.dtype)


def _mean(value: Tensor) -> Tensor:
    """The mean of all finite values everywhere."""
    wide = value.double()
    wide = wide[wide.isfinite()]
    mean = wide.mean() if wide.numel() else wide.sum()
    return _everywhere(_back(mean, value), value)


def _row_mean(value: Tensor) -> Tensor | None:
    """The mean of the rows in each of them."""
    if value.dim() < 2 or len(value) == 1:
        return None if value.dim() < 2 else value
    return _everywhere(_back(value.double().mean(0, keepdim=True), value), value)


def _everywhere(part: Tensor, like: Tensor) -> Tensor:
    """`part` repeated to the shape of `like`, in memory of its own: `contiguous` leaves one element its stride of 0."""
    return part.expand(like.shape).clone(memory_format=torch.contiguous_format)


def _back(wide: Tensor, like: Tensor) -> Tensor:
    """`wide` in the type of `like`, rounded where that is an integer type."""
    return (wide if like.is_floating_point() else wide.round()).to(like.dtype)


def _larger(value: Tensor) -> Tensor:
    """2 % too large; or one too large where values are integers, one code where they are fp8."""
    if not value.is_floating_point():
        return value + 1
    if value.dtype.itemsize == 1:
        bits = _bits(value)
        return (bits + ((bits & 0x7F) < 0x7E)).view(value.dtype)
    return (value.float() * 1.02).to(value.dtype)


def _one_nan(value: Tensor) -> Tensor | None:
    """A NaN in the last place."""
    if not value.is_floating_point():
        return None
    bits = _bits(value)
    bits.view(-1)[-1:] = _bits(_filled(value.reshape(-1)[-1:], torch.nan))
    return bits.view(value.dtype)


def _never_written(value: Tensor) -> Tensor:
    """What the referee leaves in the memory of outputs: NaN, or all bits set."""
    if value.is_floating_point():
        return _filled(value, torch.nan)
    return torch.full_like(value, -1 if value.dtype.is_signed else 255)


SPOILT: dict[str, Callable[[Tensor], Tensor | None]] = {
    "zeros": torch.zeros_like,
    "ones": lambda value: _filled(value, 1.0),
    "never written": _never_written,
    "a NaN at the end": _one_nan,
    "mean of all": _mean,
    "mean of the rows": _row_mean,
    "rows shifted": lambda value: _shifted(value, 0),
    "columns shifted": lambda value: _shifted(value, -1) if value.dim() > 1 else None,
    "last row not written": lambda value: _cleared(value, slice(-1, None)),
    "last column not written": lambda value: _cleared(value, ..., slice(-1, None)) if value.dim() > 1 else None,
    "last tile not written": lambda value: (
        _cleared(value, slice(-1, None), ..., slice(-TILE, None)) if value.dim() > 1 else None
    ),
    "2 % or one too large": _larger,
}
