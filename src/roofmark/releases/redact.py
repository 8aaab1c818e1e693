"""Texts of a release without the names of models, applications and hosts."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from typing import Any

from roofmark.errors import ProblemError
from roofmark.operators import Operator
from roofmark.releases.export import as_json

HIDDEN_AS = "[redacted]"
ORIGIN = "origin"


def names_of(operators: Iterable[Operator]) -> frozenset[str]:
    """The names of models, applications and hosts that the origins of shapes hold."""
    return frozenset(
        name.strip()
        for operator in operators
        for origin in operator.provenance.origins.values()
        for name in origin.values()
        if name.strip()
    )


def redacted(files: Mapping[str, str], names: Iterable[str]) -> dict[str, str]:
    """The files without origins, and without any of these names in what else they say.

    Code is never changed: `ProblemError` where a name stands in a Python file.
    """
    pattern = pattern_of(names)
    result = {}
    for file, text in files.items():
        if file.endswith(".json"):
            result[file] = as_json(without(json.loads(text), pattern))
        elif pattern is not None and (found := pattern.search(text)):
            raise ProblemError(f"{file} holds {found[0]!r}, which is to be redacted", hint="reword the source")
        else:
            result[file] = text
    return result


def pattern_of(names: Iterable[str]) -> re.Pattern[str] | None:
    """What matches any of the names as a whole word, in any case; None without a name."""
    longest_first = sorted(set(names), key=lambda name: (-len(name), name))
    if not longest_first:
        return None
    return re.compile(rf"(?<!\w)(?:{'|'.join(map(re.escape, longest_first))})(?!\w)", re.IGNORECASE)


def without(data: Any, pattern: re.Pattern[str] | None) -> Any:
    """JSON data without origins, and with names in its texts and keys replaced."""
    if isinstance(data, dict):
        return {without(key, pattern): without(value, pattern) for key, value in data.items() if key != ORIGIN}
    if isinstance(data, list):
        return [without(value, pattern) for value in data]
    return pattern.sub(HIDDEN_AS, data) if pattern is not None and isinstance(data, str) else data
