"""What is different between two releases."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from roofmark.releases.records import Change, Release, ReleaseOperator

OF_OPERATORS = ("title", "formula", "dtype", "phase", "framework", "symbol", "weight")
OF_SHAPES = ("dims", "init", "framework", "work", "work_published", "baseline", "errata")


def diff(a: Release, b: Release) -> tuple[Change, ...]:
    """Every difference between two releases, `a` being what was before; empty where their contents are the same."""
    return tuple(_changes(a, b))


def _changes(a: Release, b: Release) -> Iterator[Change]:
    for gpu in dict.fromkeys((*a.constants, *b.constants)):
        before, after = a.constants.get(gpu), b.constants.get(gpu)
        if before != after:
            yield _change("", "", f"constants of {gpu}", before, after)
    ours, theirs = ({one.name: one for one in release.operators} for release in (a, b))
    for name in dict.fromkeys((*ours, *theirs)):
        if name in ours and name in theirs:
            yield from _of_operator(ours[name], theirs[name])
        else:
            yield _change(name, "", "operator", _there(name in ours), _there(name in theirs))


def _of_operator(a: ReleaseOperator, b: ReleaseOperator) -> Iterator[Change]:
    for field in OF_OPERATORS:
        if getattr(a, field) != getattr(b, field):
            yield _change(a.name, "", field, getattr(a, field), getattr(b, field))
    for file in dict.fromkeys((*a.texts, *b.texts)):
        if a.texts.get(file) != b.texts.get(file):
            yield _change(a.name, "", file, a.texts.get(file, "")[:16], b.texts.get(file, "")[:16])
    ours, theirs = ({shape.shape_id: shape for shape in one.shapes} for one in (a, b))
    for key in dict.fromkeys((*ours, *theirs)):
        if key not in ours or key not in theirs:
            yield _change(a.name, key, "shape", _there(key in ours), _there(key in theirs))
            continue
        for field in OF_SHAPES:
            before, after = getattr(ours[key], field), getattr(theirs[key], field)
            if before != after:
                yield _change(a.name, key, field, before, after)


def _change(operator: str, shape_id: str, field: str, before: Any, after: Any) -> Change:
    return Change(operator=operator, shape_id=shape_id, field=field, before=_plain(before), after=_plain(after))


def _plain(value: Any) -> Any:
    """A record as data."""
    if hasattr(value, "model_dump"):
        return value.model_dump(mode="json")
    if isinstance(value, (list, tuple)):
        return [_plain(one) for one in value]
    return dict(value) if isinstance(value, Mapping) else value


def _there(there: bool) -> str:
    return "there" if there else "not there"
