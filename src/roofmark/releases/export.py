"""The five files of an operator: what an agent may see of it, and what it may not."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from roofmark.operators import Operator
from roofmark.records import Work
from roofmark.releases.inline import inlined
from roofmark.releases.records import Release, ReleaseOperator, ReleaseShape

VISIBLE = ("reference.py", "input.py", "shapes.json")
HIDDEN = ("metadata.json", "roofline.json")
MANIFEST = "release.json"
SCHEMA = 1
MAKE_INPUTS = '''def _make_inputs(*, seed: int | None = None, device: str = "cpu", **input_kwargs: Any) -> list[Tensor]:
    """The inputs in the order of `forward`'s parameters; without a seed, from the state of torch's generator."""
    if seed is None:
        seed = int(torch.randint(2**62, ()))
    return list(make_inputs(**input_kwargs, seed=seed, device=device).values())'''


def input_text(folder: Path) -> str:
    """`input.py` of an operator's folder: its inputs with all that they need, and `_make_inputs`."""
    return inlined(
        folder / "inputs.py", MAKE_INPUTS, (("torch", ""), ("torch", "Tensor"), ("typing", "Any"))
    )  # fmt: skip


def five_files(operator: Operator, found: ReleaseOperator) -> dict[str, str]:
    """The texts of the five files by name."""
    return {
        "reference.py": operator.reference_text(),
        "input.py": input_text(operator.folder),
        "shapes.json": as_json(shapes_data(operator)),
        "metadata.json": as_json(metadata_data(operator, found)),
        "roofline.json": as_json({"shapes": [roofline_data(shape) for shape in found.shapes]}),
    }


def shapes_data(operator: Operator) -> dict[str, Any]:
    """What `shapes.json` says: the contract, and for each shape the arguments of `Model` and of `_make_inputs`."""
    spec = operator.spec.model_dump(mode="json")
    shapes = [
        {
            "shape_id": shape.shape_id,
            "init_kwargs": shape.init,
            "input_kwargs": shape.sizes,
            "dims": shape.dims,
            **({"stand_in": shape.stand_in} if shape.stand_in else {}),
        }
        for shape in operator.shapes
    ]
    return {"operator": spec.pop("name"), **spec, "shapes": shapes}


def metadata_data(operator: Operator, found: ReleaseOperator) -> dict[str, Any]:
    """What `metadata.json` says: where the operator comes from, what it weighs, what its deployed kernels take."""
    source = operator.provenance
    head = source.model_dump(mode="json", exclude={"baselines", "frameworks", "call_counts", "origins"})
    shapes = [
        {
            "shape_id": shape.shape_id,
            "framework": source.frameworks.get(shape.shape_id),
            "call_count": source.call_counts.get(shape.shape_id),
            "origin": source.origins.get(shape.shape_id, {}),
            "baselines": [b.model_dump(mode="json", exclude={"shape_id"}) for b in shape.baseline],
            "errata": list(shape.errata),
        }
        for shape in found.shapes
    ]
    return {"operator": operator.name, "dtype": operator.spec.dtype, "phase": operator.spec.phase, **head,
            "shapes": shapes}  # fmt: skip


def roofline_data(shape: ReleaseShape) -> dict[str, Any]:
    """What `roofline.json` says of a shape: W, Q and T_SOL, by the work that scores and as published."""
    return {
        "shape_id": shape.shape_id,
        **work_data(shape.work),
        "t_sol_us": shape.t_sol_us,
        "published": {**work_data(shape.work_published), "t_sol_us": shape.t_sol_published_us},
    }


def work_data(work: Work) -> dict[str, Any]:
    """FLOPs and bytes."""
    return work.model_dump(mode="json")


def manifest_data(
    release: Release, files: Mapping[str, str], sources: Mapping[str, str], **flags: Any
) -> dict[str, Any]:
    """What `release.json` says of a whole build: weights, constants, and the hash of every file."""
    data = {
        "schema": SCHEMA,
        "name": release.name,
        "date": release.date,
        **flags,
        "weights": release.weights,
        "constants": {gpu: roofline.model_dump(mode="json") for gpu, roofline in release.constants.items()},
        "source_sha256": release.content_sha256,
        "sources": dict(sources),
        "files": {name: sha256(text) for name, text in sorted(files.items())},
    }
    return {**data, "content_sha256": content_sha256(data)}


def visible_manifest(release: Release, files: Mapping[str, str]) -> dict[str, Any]:
    """What `release.json` says of a visible export: its name, and the hash of every file."""
    hashes = {name: sha256(text) for name, text in sorted(files.items())}
    data = {"schema": SCHEMA, "name": release.name, "visible": True, "files": hashes}
    return {**data, "content_sha256": content_sha256(data)}


def content_sha256(data: Mapping[str, Any]) -> str:
    """The hash of a manifest's data, its own left out; with the hashes of files in it, that of all contents."""
    rest = {key: value for key, value in data.items() if key != "content_sha256"}
    return sha256(json.dumps(rest, sort_keys=True, separators=(",", ":"), allow_nan=False))


def sha256(text: str) -> str:
    """The hash of a text."""
    return hashlib.sha256(text.encode("utf-8")).hexdigest()


def as_json(data: Any) -> str:
    """Data as JSON text, for people and machines."""
    return json.dumps(data, indent=1, ensure_ascii=False, allow_nan=False) + "\n"
