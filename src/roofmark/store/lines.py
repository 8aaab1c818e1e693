"""Record files: JSON documents and JSON lines, read strictly, with the line named in every refusal."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any, TypeVar

from pydantic import ValidationError
from pydantic_core import PydanticSerializationError, from_json

from roofmark.errors import StoreError
from roofmark.records import SCHEMA, Calibration, Manifest, Status, Verdict
from roofmark.store.files import read_bounded

MAX_LINES_BYTES = 512 << 20
MAX_LINE_BYTES = 16 << 20

R = TypeVar("R", Manifest, Verdict, Calibration)
Key = tuple[str, str, str]


def key_of(verdict: Verdict) -> Key:
    """(subject, operator, shape_id): what a run holds one verdict of."""
    return (verdict.subject, verdict.operator, verdict.shape_id)


def encode(record: Manifest | Verdict | Calibration) -> bytes:
    """The record as one line of JSON with its newline; floats survive a round trip to the bit.

    Half surrogates, which a candidate's own messages may hold and JSON can't, become question marks.
    """
    try:
        return record.model_dump_json().encode() + b"\n"
    except PydanticSerializationError:
        clean = type(record).model_validate(_encodable(record.model_dump()))
    try:
        return clean.model_dump_json().encode() + b"\n"
    except PydanticSerializationError as error:
        raise StoreError(f"a {type(record).__name__} can't be written as JSON: {error}") from error


def _encodable(value: Any) -> Any:
    """The value with every string in it made fit for UTF-8."""
    if isinstance(value, str):
        return str(value).encode("utf-8", "replace").decode()
    if isinstance(value, dict):
        return {_encodable(k): _encodable(v) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return [_encodable(item) for item in value]
    return value


def parse(kind: type[R], data: bytes, where: str) -> R:
    """The record in `data`; `StoreError` naming `where` for anything else."""
    if len(data) > MAX_LINE_BYTES:
        raise StoreError(f"{where} is larger than {MAX_LINE_BYTES >> 20} MiB")
    try:
        raw = from_json(data)
    except ValueError as error:
        raise StoreError(f"{where} is not JSON: {error}") from error
    if not isinstance(raw, dict):
        raise StoreError(f"{where} is not a {kind.__name__} record")
    if raw.get("schema") != SCHEMA:
        found = repr(raw.get("schema"))[:40]
        raise StoreError(f"{where} has schema {found}; this Roofmark reads schema {SCHEMA}")
    try:
        return kind.model_validate_json(data)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        place = ".".join(str(part) for part in first["loc"])[:80]
        raise StoreError(f"{where} is not a {kind.__name__}: {place}: {first['msg'][:120]}") from error


def read_manifest(folder: int, path: Path) -> Manifest | None:
    """The manifest of the run directory, None where it has none yet."""
    data = read_bounded(folder, "manifest.json", MAX_LINE_BYTES, path)
    return None if data is None else parse(Manifest, data, str(path / "manifest.json"))


def read_lines(kind: type[R], folder: int, name: str, path: Path) -> tuple[list[R], str]:
    """The records of a JSON-lines file, and a message where its last line is torn (and left out)."""
    data = read_bounded(folder, name, MAX_LINES_BYTES, path) or b""
    body, newline, tail = data.rpartition(b"\n")
    lines = body.split(b"\n") if newline else []
    records = [parse(kind, line, f"{path / name} line {n}") for n, line in enumerate(lines, 1)]
    return records, torn_message(path / name, len(lines) + 1, len(tail)) if tail else ""


def torn_message(file: Path, line: int, size: int) -> str:
    """What is said of a last line that a crash cut off."""
    return f"{file} line {line} was cut off after {size} bytes and is left out"


def one_each(verdicts: Iterable[Verdict], manifest: Manifest, file: Path) -> tuple[dict[Key, Verdict], list[str]]:
    """The verdict that stands for each key, and a message for each that replaced an earlier one.

    The first verdict stands; only `infrastructure`, our own failure, may be followed by another.
    A second verdict or one that the manifest does not ask for is a `StoreError`.
    """
    standing: dict[Key, Verdict] = {}
    said: list[str] = []
    for line, verdict in enumerate(verdicts, 1):
        key = key_of(verdict)
        if not is_planned(key, manifest):
            raise StoreError(f"{file} line {line} judges {in_words(key)}, which the manifest does not ask for")
        before = standing.get(key)
        if before is not None and before.status is not Status.INFRASTRUCTURE:
            raise StoreError(f"{file} line {line} is a second verdict of {in_words(key)}")
        if before is not None:
            said.append(f"{file} line {line} replaces an infrastructure failure of {in_words(key)}")
        standing[key] = verdict
    return standing, said


def is_planned(key: Key, manifest: Manifest) -> bool:
    """Whether the manifest asks for this shape."""
    _, operator, shape = key
    return any(plan.operator == operator and shape in plan.shape_ids for plan in manifest.plans)


def in_words(key: Key) -> str:
    """The key as a person would say it."""
    subject, operator, shape = key
    return f"{subject} on {operator} shape {shape}"
