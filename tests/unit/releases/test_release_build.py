"""A build holds five files an operator that stand alone, and what an agent sees of it holds nothing hidden."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from decimal import Decimal, InvalidOperation
from pathlib import Path
from typing import Any

import pytest

from roofmark import operators, releases
from roofmark.errors import ProblemError, UserError
from roofmark.releases import sets
from roofmark.releases.export import HIDDEN, MANIFEST, VISIBLE

# a number that is no part of a word, a hash or a longer number
NUMBER = re.compile(r"(?<![\w.])\d[\d_]*(?:\.\d+)?(?:[eE][+-]?\d+)?(?![\w.]*\w)")
CANARY = "canary-7f3a91"

# Loads every operator's files with no roofmark to be had, and calls the reference on the shape of least work.
ALONE = """
import importlib.util, json, pathlib, sys
sys.modules["roofmark"] = None
import torch
torch.set_num_threads(1)
for folder in sorted(p.parent for p in pathlib.Path(sys.argv[1]).glob("*/shapes.json")):
    made = {}
    for stem in ("reference", "input"):
        spec = importlib.util.spec_from_file_location(f"{folder.name}_{stem}", folder / f"{stem}.py")
        made[stem] = sys.modules[spec.name] = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(made[stem])
    shapes = {s["shape_id"]: s for s in json.loads((folder / "shapes.json").read_text())["shapes"]}
    works = json.loads((folder / "roofline.json").read_text())["shapes"]
    least = min(works, key=lambda w: w["bytes_read"] + w["bytes_written"] + sum(w["flops"].values()) / 10)
    shape = shapes[least["shape_id"]]
    stand_in = shape.get("stand_in", {})
    init = {k: stand_in.get(k, v) for k, v in shape["init_kwargs"].items()}
    inputs = made["input"]._make_inputs(**{**shape["input_kwargs"], **stand_in})
    assert isinstance(inputs, list) and all(isinstance(t, torch.Tensor) for t in inputs)
    out = made["reference"].Model(**init)(*inputs)
    specs = made["input"].outputs(**{**shape["input_kwargs"], **stand_in})
    outs = [out] if isinstance(out, torch.Tensor) else list(out)
    told = [(tuple(s.shape), "torch." + s.dtype) for s in specs]
    assert [(tuple(o.shape), str(o.dtype)) for o in outs] == told, (folder.name, told)
    print(folder.name)
"""


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The whole build of release 2026.07."""
    out = tmp_path_factory.mktemp("build") / "release"
    releases.build("2026.07", out)
    return out


def copied(names: tuple[str, ...], root: Path) -> Path:
    """A source that holds these operators."""
    for name in names:
        shutil.copytree(operators.HERE / name, root / name, ignore=shutil.ignore_patterns("__pycache__"))
    return root


def texts(root: Path) -> dict[str, str]:
    return {str(p.relative_to(root)): p.read_text(encoding="utf-8") for p in root.rglob("*") if p.is_file()}


def test_a_build_has_five_files_an_operator_and_is_the_release(built: Path) -> None:
    files = {f"{name}/{file}" for name in operators.names() for file in (*VISIBLE, *HIDDEN)}
    assert set(texts(built)) == {*files, MANIFEST}
    assert releases.verify(built).problems == ()
    source, there = releases.load("2026.07"), releases.load(built)
    assert (there.kind, there.name) == ("build", "2026.07")
    assert releases.diff(source, there) == ()
    assert there.shapes == source.shapes
    assert releases.totals(there) == releases.totals(source)


def test_two_builds_are_the_same_byte_for_byte(built: Path, tmp_path: Path) -> None:
    releases.build("2026.07", tmp_path / "again")
    assert texts(tmp_path / "again") == texts(built)


def test_a_build_needs_no_roofmark(built: Path) -> None:
    done = subprocess.run([sys.executable, "-c", ALONE, str(built)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert tuple(done.stdout.split()) == operators.names()
    assert not [name for name, text in texts(built).items() if re.search(r"^\s*(from|import) roofmark", text, re.M)]


@pytest.mark.parametrize("name", operators.names())
def test_the_inputs_of_a_build_are_those_of_the_source(built: Path, name: str) -> None:
    import torch

    torch.set_num_threads(1)
    source = operators.load(name)
    module = operators.fresh_module(built / name, "input")
    least = min(source.shapes, key=lambda s: source.work({**s.sizes, **(s.stand_in or {})}).bytes_total)
    sizes = {**least.sizes, **(least.stand_in or {})}
    ours, theirs = source.make_inputs(sizes, seed=5, device="cpu"), module._make_inputs(**sizes, seed=5)
    assert len(ours) == len(theirs)
    for a, b in zip(ours.values(), theirs, strict=True):
        assert (a.dtype, a.shape) == (b.dtype, b.shape)
        assert a.contiguous().flatten().view(torch.uint8).equal(b.contiguous().flatten().view(torch.uint8))
    assert module.corners(**sizes) == source.corners(sizes)


# ---- what an agent may see -------------------------------------------------------------------------


def test_what_an_agent_sees_holds_no_canary(tmp_path: Path) -> None:
    names = operators.names()
    root = copied(names, tmp_path / "source")
    for name in names:
        for file in ("work.py", "oracle.py", "zoo.py", "second.py"):
            path = root / name / file
            path.write_text(f"{path.read_text()}\n# {CANARY}-{file}\n")
        path = root / name / "provenance.toml"
        text = path.read_text()
        for key in ("framework", "symbol", "source"):
            text = re.sub(rf'^{key} = "', f'{key} = "{CANARY}-{key} ', text, count=1, flags=re.M)
        text = re.sub(r'backend = "', f'backend = "{CANARY}-backend ', text)
        origin = ", ".join(f'{key} = "{CANARY}-{key}"' for key in ("model", "application", "host"))
        shape_id = operators.load(name).shapes[0].shape_id
        path.write_text(f'{text}\n[origins]\n"{shape_id}" = {{ {origin} }}\n')
    releases.build(root, tmp_path / "visible", visible=True)
    releases.build(root, tmp_path / "whole")
    assert not [name for name, text in texts(tmp_path / "visible").items() if CANARY in text]
    for name in names:  # the search is no good if nothing was planted
        metadata = (tmp_path / "whole" / name / "metadata.json").read_text()
        assert all(f"{CANARY}-{key}" in metadata for key in ("framework", "symbol", "source", "backend", "host"))


def digits(number: str) -> int:
    """How many digits of a number count."""
    try:
        return len(Decimal(number.replace("_", "")).normalize().as_tuple().digits)
    except InvalidOperation:
        return 0


def numbers(text: str) -> Iterator[Decimal]:
    """The numbers of five or more digits that count, those in words and hashes left out."""
    for found in NUMBER.findall(text):
        if digits(found) >= 5:
            yield Decimal(found.replace("_", ""))


def sizes_in(data: Any) -> Iterator[Decimal]:
    """The numbers in an operator's sizes, which are to be seen."""
    if isinstance(data, dict):
        data = list(data.values())
    if isinstance(data, (list, tuple)):
        for one in data:
            yield from sizes_in(one)
    elif isinstance(data, (int, float)) and not isinstance(data, bool):
        yield Decimal(str(data))


def test_what_an_agent_sees_holds_no_hidden_number(built: Path, tmp_path: Path) -> None:
    releases.build("2026.07", tmp_path / "visible", visible=True)
    seen = texts(tmp_path / "visible")
    assert set(seen) == {*(f"{name}/{file}" for name in operators.names() for file in VISIBLE), MANIFEST}
    for name in operators.names():
        operator = operators.load(name)
        sizes = {number for s in operator.shapes for number in sizes_in([s.dims, s.init, s.stand_in or {}])}
        hidden = {n for file in HIDDEN for n in numbers((built / name / file).read_text())}
        hidden |= {n for file in ("provenance.toml", "work.py") for n in numbers((operator.folder / file).read_text())}
        assert hidden - sizes
        told = {n for file, text in seen.items() if file.startswith(f"{name}/") for n in numbers(text)}
        assert not (told & hidden) - sizes, name
    whole = json.loads((built / MANIFEST).read_text())
    of_release = set(numbers(json.dumps({key: whole[key] for key in ("weights", "constants")})))
    assert of_release
    assert not of_release & {n for text in seen.values() for n in numbers(text)}


def test_what_an_agent_sees_names_no_framework_and_is_judged_by_nobody(tmp_path: Path) -> None:
    releases.build("2026.07", tmp_path / "visible", visible=True)
    for name, text in texts(tmp_path / "visible").items():
        assert not re.search(r"vllm|sglang|aiter|rtp.llm|baseline|t_sol|roofline", text, re.IGNORECASE), name
    with pytest.raises(UserError, match="no weights and no works"):
        sets.resolve(str(tmp_path / "visible"))


# ---- redaction -------------------------------------------------------------------------------------


def with_origins(root: Path) -> Path:
    """A source whose provenance names a model, an application and a host, in origins and in texts."""
    copied(("rms_norm", "silu_and_mul"), root)
    for name in ("rms_norm", "silu_and_mul"):
        path = root / name / "provenance.toml"
        text = path.read_text().replace(
            'source = "', 'source = "traces of Quokka-72B in ChatMarsupial on gpu-node-17; '
        )
        origin = 'model = "Quokka-72B", application = "ChatMarsupial", host = "gpu-node-17"'
        path.write_text(f'{text}\n[origins]\n"0" = {{ {origin} }}\n')
    return root


def test_redaction_removes_models_applications_and_hosts_from_all_files(tmp_path: Path) -> None:
    root = with_origins(tmp_path / "source")
    releases.build(root, tmp_path / "plain")
    releases.build(root, tmp_path / "redacted", redact=True)
    names = ("quokka", "chatmarsupial", "gpu-node-17")
    plain, redacted = ("\n".join(texts(tmp_path / kind).values()).lower() for kind in ("plain", "redacted"))
    assert all(name in plain for name in names)
    assert not [name for name in names if name in redacted]
    assert releases.verify(tmp_path / "redacted").problems == ()
    fields = {c.field for c in releases.diff(releases.load(tmp_path / "plain"), releases.load(tmp_path / "redacted"))}
    assert fields == set()  # what is judged and weighed stays


def test_a_name_in_code_is_refused_and_nothing_is_written(tmp_path: Path) -> None:
    root = with_origins(tmp_path / "source")
    path = root / "rms_norm" / "reference.py"
    path.write_text(path.read_text() + "\n# as quokka-72b has it\n")
    with pytest.raises(ProblemError, match=r"rms_norm/reference\.py holds 'quokka-72b'"):
        releases.build(root, tmp_path / "out", redact=True)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["source"]


# ---- what is refused, and what is found out ---------------------------------------------------------


def test_a_bound_above_a_deployed_time_is_refused(tmp_path: Path) -> None:
    root = copied(("rms_norm",), tmp_path / "source")
    path = root / "rms_norm" / "provenance.toml"
    path.write_text(path.read_text().replace("time_us = 208.01", "time_us = 50.0"))
    with pytest.raises(ProblemError, match=r"rms_norm shape 14: T_SOL on XPU-A is 57 us, above the deployed 50 us"):
        releases.build(root, tmp_path / "out")
    assert sorted(p.name for p in tmp_path.iterdir()) == ["source"]


def test_a_place_that_is_taken_is_refused(built: Path) -> None:
    with pytest.raises(UserError, match="is there already"):
        releases.build("2026.07", built)
    with pytest.raises(UserError, match="not a source"):
        releases.build(built, built.parent / "other")


def test_verify_says_what_changed(built: Path, tmp_path: Path) -> None:
    place = tmp_path / "copy"
    shutil.copytree(built, place)
    (place / "rms_norm" / "input.py").write_text("")
    (place / "mrope" / "roofline.json").unlink()
    (place / "mrope" / "notes.txt").write_text("")
    manifest = json.loads((place / MANIFEST).read_text())
    manifest["weights"]["rms_norm"] = 0.5
    (place / MANIFEST).write_text(json.dumps(manifest))
    assert releases.verify(place).problems == (
        "rms_norm/input.py was changed",
        "mrope/roofline.json is missing",
        "mrope/notes.txt was added",
        f"{MANIFEST} was changed",
    )
    with pytest.raises(ProblemError, match=r"rms_norm/input\.py was changed"):
        sets.resolve(str(place))


def test_diff_names_operator_shape_and_field(tmp_path: Path) -> None:
    a, b = copied(("rms_norm", "mrope"), tmp_path / "a"), copied(("rms_norm", "l2_norm"), tmp_path / "b")
    path = b / "rms_norm" / "provenance.toml"
    path.write_text(path.read_text().replace("weight = 0.025127", "weight = 0.5").replace("9.95", "9.96"))
    path = b / "rms_norm" / "shapes.toml"
    path.write_text(path.read_text().replace("token_count = 2500,", "token_count = 2501,"))
    found = releases.diff(releases.load(a), releases.load(b))
    told = {(c.operator, c.shape_id, c.field) for c in found}
    assert told == {
        ("mrope", "", "operator"),
        ("l2_norm", "", "operator"),
        ("rms_norm", "", "weight"),
        *(("rms_norm", "0", field) for field in ("dims", "work", "work_published", "baseline")),
    }
    weight = next(c for c in found if c.field == "weight")
    assert (weight.before, weight.after) == (0.025127, 0.5)


def test_a_build_of_these_sources_is_judged_with_their_oracles(built: Path) -> None:
    assert sets.resolve(str(built)) == ("2026.07", operators.HERE)
    assert sets.resolve("2026.07") == ("2026.07", operators.HERE)
    assert sets.unavailable(operators.HERE) == ()
