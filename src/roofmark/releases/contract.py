"""Reads the five files of an operator, whoever wrote them. docs/releases.md lists the keys that are read."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from pydantic import ValidationError

from roofmark.errors import ProblemError
from roofmark.records import Baseline, OperatorSpec, Provenance, Record, Shape, Work
from roofmark.releases.export import HIDDEN, MANIFEST, VISIBLE

R = TypeVar("R", bound=Record)
# each thing that is read, by the keys that may hold it, the first that is there
ID = ("shape_id", "id", "name")
INIT = ("init_kwargs", "init")
INPUT = ("input_kwargs", "dims", "kwargs")
WEIGHT = ("weight", "importance", "raw_importance")
FLOPS = ("flops", "W")
BYTES = ("bytes", "Q", "bytes_total")
BASELINES = ("baselines", "baseline")


@dataclass(frozen=True)
class FiveFiles:
    """An operator as its five files have it. Works are by shape id; `input_kwargs` are what `_make_inputs` takes."""

    folder: Path
    spec: OperatorSpec
    shapes: tuple[Shape, ...]
    provenance: Provenance
    input_kwargs: dict[str, dict[str, Any]]
    works: dict[str, Work]
    works_published: dict[str, Work]
    errata: dict[str, tuple[str, ...]]


def names(root: Path) -> tuple[str, ...]:
    """The names of the operators under `root` that have `reference.py` and `shapes.json`, sorted."""
    return tuple(sorted(p.parent.name for p in root.glob("*/shapes.json") if (p.parent / "reference.py").is_file()))


def is_visible_export(root: Path) -> bool:
    """Whether the directory is what an agent may see of a build: it has no weights, works or times."""
    path = root / MANIFEST
    return path.is_file() and bool(json_file(path).get("visible"))


def read(folder: Path) -> FiveFiles:
    """The operator of a folder; `ProblemError`, in one line, for the first thing that it lacks."""
    for file in (*VISIBLE, *HIDDEN):
        if not (folder / file).is_file():
            raise ProblemError(f"{folder} has no {file}", hint="an operator needs " + ", ".join((*VISIBLE, *HIDDEN)))
    told, meta, roof = (json_file(folder / file, listed="shapes") for file in ("shapes.json", *HIDDEN))
    shapes = tuple(shapes_of(folder, told))
    dtype = str(meta.get("dtype", told.get("dtype", "")))
    rows = by_id(roof, folder / "roofline.json")
    works = {s.shape_id: work_of(rows.get(s.shape_id), s.shape_id, dtype, folder / "roofline.json") for s in shapes}
    published = {
        s.shape_id: work_of(row["published"], s.shape_id, dtype, folder / "roofline.json")
        if (row := rows[s.shape_id]).get("published")
        else works[s.shape_id]
        for s in shapes
    }
    dtype = dtype or next((d for work in works.values() for d in work.flops), "unknown")
    # a count under `shapes` is no table of theirs
    of_meta = by_id(meta, folder / "metadata.json") if isinstance(meta.get("shapes"), (list, dict)) else {}
    return FiveFiles(
        folder=folder,
        spec=spec_of(folder, told, meta, dtype),
        shapes=shapes,
        provenance=provenance_of(folder, meta, of_meta),
        input_kwargs={key: arguments(row, INPUT) or {} for key, row in by_id(told, folder / "shapes.json").items()},
        works=works,
        works_published=published,
        errata={key: tuple(row.get("errata", ())) for key, row in of_meta.items()},
    )


def shapes_of(folder: Path, told: Mapping[str, Any]) -> Iterator[Shape]:
    """The shapes of `shapes.json`."""
    path = folder / "shapes.json"
    rows = by_id(told, path)
    if not rows:
        raise ProblemError(f"{path} lists no shape")
    for key, row in rows.items():
        given = arguments(row, INPUT)
        if given is None:
            raise ProblemError(f"{path}: shape {key} has no {INPUT[0]}", hint=f"or {' or '.join(INPUT[1:])}")
        init = arguments(row, INIT) or arguments(told, INIT) or {}
        dims = row.get("dims", given) if isinstance(row.get("dims", given), dict) else given
        twice = [name for name in init if name in dims and dims[name] != init[name]]
        if twice:
            raise ProblemError(f"{path}: shape {key} has {twice[0]} twice, with two values")
        fields = {"operator": folder.name, "shape_id": key, "dims": dims, "init": init}
        yield checked(path, Shape, {**fields, "stand_in": row.get("stand_in") or None})


def spec_of(folder: Path, told: Mapping[str, Any], meta: Mapping[str, Any], dtype: str) -> OperatorSpec:
    """The description of the operator, as far as there is one."""
    known = {**meta, **told}
    fields = {
        "name": folder.name,
        "title": str(known.get("title", folder.name)),
        "formula": str(known.get("formula", "as reference.py has it")),
        "dtype": dtype,
        "phase": str(known.get("phase", "")),
        "outputs": known.get("outputs", ()),
        "legality": known.get("legality", {}),
        "notes": str(known.get("notes", "")),
    }
    return checked(folder / "shapes.json", OperatorSpec, fields)


def provenance_of(folder: Path, meta: Mapping[str, Any], rows: Mapping[str, Any]) -> Provenance:
    """Where the operator comes from and what it weighs."""
    weight = first(meta, WEIGHT)
    if not isinstance(weight, (int, float)) or isinstance(weight, bool):
        raise ProblemError(f"{folder / 'metadata.json'} has no {WEIGHT[0]}", hint=f"or {' or '.join(WEIGHT[1:])}")
    made = [
        {"shape_id": key, **baseline} for key, row in rows.items() for baseline in baselines_of(first(row, BASELINES))
    ]
    made += baselines_of(first(meta, BASELINES))
    return checked(
        folder / "metadata.json",
        Provenance,
        {
            "framework": str(meta.get("framework", "unknown")),
            "symbol": str(meta.get("symbol", folder.name)),
            "raw_importance": meta.get("raw_importance", weight),
            "weight": weight,
            "num_profiles": meta.get("num_profiles", 0),
            "source": str(meta.get("source", "")),
            "baselines": made,
            "frameworks": {key: row["framework"] for key, row in rows.items() if row.get("framework")},
            "call_counts": {key: row["call_count"] for key, row in rows.items() if row.get("call_count") is not None},
            "origins": {key: row["origin"] for key, row in rows.items() if row.get("origin")},
        },
    )


def baselines_of(told: Any) -> list[dict[str, Any]]:
    """Deployed times: a list of records, or for each accelerator one with `time_us`, or the time alone."""
    if isinstance(told, dict):
        told = [{"gpu": gpu, **(one if isinstance(one, dict) else {"time_us": one})} for gpu, one in told.items()]
    if not isinstance(told, list):
        return []
    fields = Baseline.model_fields
    return [{"backend": "unknown", **{k: v for k, v in one.items() if k in fields}} for one in told if "time_us" in one]


def work_of(row: Mapping[str, Any] | None, shape_id: str, dtype: str, path: Path) -> Work:
    """The work of one row of `roofline.json`; a single number of FLOPs is of the operator's dtype."""
    if row is None:
        raise ProblemError(f"{path} has no shape {shape_id}")
    flops = first(row, FLOPS)
    if flops is None:
        raise ProblemError(f"{path}: shape {shape_id} has no {FLOPS[0]}", hint="a number, or one for each dtype")
    if not isinstance(flops, dict) and not dtype:
        raise ProblemError(f"{path}: shape {shape_id} has a number of flops, metadata.json no dtype for it")
    read, written = row.get("bytes_read"), row.get("bytes_written")
    if read is None or written is None:
        read, written = first(row, BYTES), 0
    if read is None:
        raise ProblemError(f"{path}: shape {shape_id} has no bytes_read and bytes_written", hint="or bytes, their sum")
    table = flops if isinstance(flops, dict) else {dtype: flops}
    return checked(path, Work, {"flops": table, "bytes_read": read, "bytes_written": written})


def by_id(told: Mapping[str, Any], path: Path) -> dict[str, dict[str, Any]]:
    """The rows of a file by shape id: of a list under `shapes`, or of a table by id, there or at the top."""
    rows = told.get("shapes", told)
    if not isinstance(rows, (list, dict)):
        raise ProblemError(f"{path}: shapes is no list")
    pairs = rows.items() if isinstance(rows, dict) else enumerate(rows)
    found: dict[str, dict[str, Any]] = {}
    for key, row in pairs:
        if not isinstance(row, dict):
            if rows is told:  # beside shapes by id, a table holds what belongs to all
                continue
            raise ProblemError(f"{path}: shape {key} is no table")
        name = str(row_id if (row_id := first(row, ID)) is not None else key)
        if name in found:
            raise ProblemError(f"{path} lists shape {name} twice")
        found[name] = row
    return found


def arguments(row: Mapping[str, Any], keys: tuple[str, ...]) -> dict[str, Any] | None:
    """The keyword arguments under the first of the keys that is there, None where none is."""
    found = first(row, keys)
    return found if isinstance(found, dict) else None


def first(row: Mapping[str, Any], keys: tuple[str, ...]) -> Any:
    """What the first of the keys holds that is there, None where none is."""
    return next((row[key] for key in keys if row.get(key) is not None), None)


def json_file(path: Path, listed: str = "") -> dict[str, Any]:
    """The table that a JSON file holds; a list counts as one under `listed`."""
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise ProblemError(f"{path} is not JSON: {error}") from error
    if isinstance(data, list) and listed:
        return {listed: data}
    if not isinstance(data, dict):
        raise ProblemError(f"{path} holds no table")
    return data


def checked(path: Path, kind: type[R], data: Mapping[str, Any]) -> R:
    """The record of some data; what is wrong with its fields is a `ProblemError` in one line."""
    try:
        return kind.model_validate(data)
    except ValidationError as error:
        where = error.errors()[0]
        raise ProblemError(f"{path}: {'.'.join(map(str, where['loc']))}: {where['msg']}") from error
