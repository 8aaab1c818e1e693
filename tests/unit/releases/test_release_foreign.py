"""Five files that somebody else wrote are read leniently, judged fairly, and refused in one line."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

import five_files
from five_files import write, write_set
from roofmark import operators, releases
from roofmark.errors import ProblemError
from roofmark.evaluate.correctness import check_outputs
from roofmark.operators import Operator
from roofmark.records import Baseline, Work
from roofmark.releases import foreign, sets
from roofmark.releases.export import MANIFEST, content_sha256


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return write_set(tmp_path / "theirs")


def one(tmp_path: Path, reference: str, inputs: str = five_files.COUNT_INPUT) -> Operator:
    """An operator of one shape with 5 rows."""
    parts = (five_files.COUNT_SHAPES, five_files.COUNT_METADATA, five_files.COUNT_ROOFLINE)
    return foreign.load(write(tmp_path / "one", reference, inputs, *parts))


def answer(operator: Operator, change: Callable[..., Any] = lambda *outs: outs, seed: int = 3) -> str | None:
    """What the check says of the reference's answer, changed."""
    sizes = operator.shapes[0].sizes
    inputs = operator.make_inputs(sizes, seed=seed, device="cpu")
    made = foreign.Parts.run(operator.parts("inputs"), inputs, sizes, wide=False)  # type: ignore[misc]
    outs = dict(zip(made, change(*made.values()), strict=True))
    finding = check_outputs(operator, inputs, sizes, outs, None).finding
    return finding.message if finding else None


def test_a_set_is_read_with_its_weights_works_and_times(root: Path) -> None:
    release = releases.load(root)
    assert (release.kind, release.weights) == ("five files", {"count": 1.0, "scale": 0.75})
    count, scale = release.operators
    assert (count.dtype, scale.dtype, scale.framework) == ("fp32", "bf16", "theirs")
    assert count.shapes[0].baseline == (Baseline(shape_id="0", gpu="XPU-A", backend="unknown", time_us=3.5),)
    a, b = scale.shapes
    assert (a.shape_id, a.dims, a.init) == ("a", {"rows": 64, "columns": 256}, {"factor": 3.0})
    assert a.work == Work(flops={"bf16": 32768}, bytes_read=33280, bytes_written=32768)
    assert b.work == b.work_published == Work(flops={"bf16": 896}, bytes_read=1920, bytes_written=0)
    assert a.t_sol_us["h20"] == pytest.approx(66048 / 4e6)


def test_what_can_not_be_checked_is_said(root: Path) -> None:
    assert sets.resolve(str(root)) == ("theirs", root)
    assert sets.unavailable(root) == foreign.UNAVAILABLE
    operator = sets.operator("scale", root)
    sizes = operator.shapes[0].sizes
    assert operator.corners(sizes) == {}
    assert operator.neighbours(sizes, random.Random(1)) == ()
    assert operator.whole


def test_inputs_follow_from_the_seed_and_leave_the_generators_alone(root: Path) -> None:
    operator = sets.operator("scale", root)
    sizes = operator.shapes[0].sizes
    torch.manual_seed(1)
    random.seed(1)
    wanted = torch.rand(3), random.random()
    torch.manual_seed(1)
    random.seed(1)
    a, b, c = (operator.make_inputs(sizes, seed=seed, device="cpu") for seed in (1 << 100, 1 << 100, 7))
    assert torch.rand(3).equal(wanted[0])
    assert random.random() == wanted[1]
    assert list(a) == ["x", "bias"]
    assert a["x"].equal(b["x"])
    assert not a["x"].equal(c["x"])


def test_the_reference_is_right_and_other_answers_are_not(root: Path) -> None:
    scale = sets.operator("scale", root)
    assert answer(scale) is None
    assert answer(scale, lambda y: [y + 0.004]) is None  # the elementwise rule: 1e-2 + 5e-2 |y|
    assert "should be" in str(answer(scale, lambda y: [y + 0.06 * y.abs() + 0.02]))
    assert "should be" in str(answer(scale, lambda y: [torch.zeros_like(y)]))
    count = sets.operator("count", root)
    assert answer(count) is None
    assert "out1[" in str(answer(count, lambda y, i: [y, (i + 1) % 32]))
    assert "should be" in str(answer(count, lambda y, i: [y * float("nan"), i]))


def test_the_oracle_is_wide(tmp_path: Path) -> None:
    cancelling = """
import torch
class Model(torch.nn.Module):
    def forward(self, x):
        return (x + 1e7) - 1e7
"""
    operator = one(tmp_path, cancelling)
    assert "should be" in str(answer(operator))  # float32 loses x beside 1e7: the answer is off by up to 1/2
    assert answer(operator, lambda y: [operator.make_inputs({"rows": 5}, seed=3, device="cpu")["x"]]) is None


def test_a_reference_that_takes_its_own_types_alone_is_the_oracle_as_it_is(tmp_path: Path) -> None:
    narrow = """
import torch
class Model(torch.nn.Module):
    def forward(self, x):
        assert x.dtype == torch.float32
        return x * 2
"""
    operator = one(tmp_path, narrow)
    assert answer(operator) is None
    assert "should be" in str(answer(operator, lambda y: [y * 1.2]))


def test_codes_of_fp8_may_be_one_step_off(tmp_path: Path) -> None:
    quantises = """
import torch
class Model(torch.nn.Module):
    def forward(self, x):
        return (x.float() * 16).to(torch.float8_e4m3fn)
"""
    operator = one(tmp_path, quantises)

    def step(by: int) -> Callable[[torch.Tensor], list[torch.Tensor]]:
        return lambda y: [(y.view(torch.uint8) + by).view(y.dtype)]

    assert answer(operator) is None
    assert answer(operator, step(1)) is None
    assert "should be" in str(answer(operator, step(2)))


def test_inputs_that_change_in_place_do_not_reach_the_oracle(tmp_path: Path) -> None:
    in_place = """
import torch
class Model(torch.nn.Module):
    def forward(self, x):
        return x.mul_(2)
"""
    assert answer(one(tmp_path, in_place)) is None


NO_TIME = {"shape_id": "0", "gpu": "g", "time_us": 0}
BROKEN: dict[str, tuple[str, Any, str]] = {
    "no file": ("metadata.json", None, "has no metadata.json"),
    "no JSON": ("roofline.json", "{", "roofline.json is not JSON"),
    "no shapes": ("shapes.json", [], "lists no shape"),
    "no input_kwargs": ("shapes.json", [{"shape_id": "0"}], "shape 0 has no input_kwargs"),
    "a shape twice": ("shapes.json", [{"id": 1, "dims": {}}, {"id": 1, "dims": {}}], "lists shape 1 twice"),
    "two values": ("shapes.json", [{"init": {"n": 1}, "dims": {"n": 2}}], "has n twice, with two values"),
    "no weight": ("metadata.json", {"framework": "x"}, "metadata.json has no weight"),
    "no row": ("roofline.json", {"shapes": []}, "roofline.json has no shape 0"),
    "no flops": ("roofline.json", [{"bytes": 1}], "shape 0 has no flops"),
    "no bytes": ("roofline.json", [{"flops": {"fp32": 1}}], "shape 0 has no bytes_read and bytes_written"),
    "no dtype": ("roofline.json", [{"flops": 1, "bytes": 1}], "metadata.json no dtype"),
    "half a FLOP": ("roofline.json", [{"flops": {"fp32": 0.5}, "bytes": 1}], "flops.fp32"),
    "no time": ("metadata.json", {"weight": 1, "baseline": [NO_TIME]}, "time_us"),
}  # fmt: skip


@pytest.mark.parametrize("case", BROKEN)
def test_what_is_missing_is_told_in_one_line(root: Path, case: str) -> None:
    file, data, says = BROKEN[case]
    path = root / "count" / file
    path.unlink()
    if data is not None:
        path.write_text(data if isinstance(data, str) else json.dumps(data))
    with pytest.raises(ProblemError) as caught:
        releases.load(root)
    assert says in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("reference", "inputs", "says"),
    [
        ("x = 1", five_files.COUNT_INPUT, "reference.py defines no Model"),
        ("raise ValueError('no')", five_files.COUNT_INPUT, "can't be loaded: ValueError: no"),
        (five_files.COUNT_REFERENCE, "x = 1", "input.py defines no _make_inputs"),
        (five_files.COUNT_REFERENCE, "def _make_inputs(rows):\n    return [1]", "must return a tensor for each"),
        (
            five_files.COUNT_REFERENCE.replace("return x.sum(-1), x.argmax(-1)", "return 3"),
            five_files.COUNT_INPUT,
            "return tensors",
        ),
    ],
)
def test_code_that_keeps_no_contract_is_told(tmp_path: Path, reference: str, inputs: str, says: str) -> None:
    operator = one(tmp_path, reference, inputs)
    with pytest.raises(ProblemError, match=says):
        operator.outputs(operator.shapes[0].sizes)


def test_a_build_of_other_sources_is_judged_by_its_five_files(tmp_path: Path) -> None:
    source = tmp_path / "source" / "rms_norm"
    source.mkdir(parents=True)
    for file in operators.SOURCES:
        (source / file).write_bytes((operators.HERE / "rms_norm" / file).read_bytes())
    releases.build(source.parent, tmp_path / "built")
    path = tmp_path / "built" / MANIFEST
    data = {**json.loads(path.read_text()), "name": "ours"}
    path.write_text(json.dumps({**data, "content_sha256": content_sha256(data)}))
    name, root = sets.resolve(str(tmp_path / "built"))
    assert (name, root) == ("ours", tmp_path / "built")
    operator = sets.operator("rms_norm", root)
    ours = operators.load("rms_norm")
    shape = ours.shape("41")
    assert operator.shape("41") == shape
    assert operator.work(shape.sizes) == ours.work(shape.sizes)
    assert operator.work_published(shape.sizes) == ours.work_published(shape.sizes)
    assert operator.outputs(shape.sizes)[0].shape == ours.outputs(shape.sizes)[0].shape
    a, b = (o.make_inputs(shape.sizes, seed=9, device="cpu") for o in (operator, ours))
    assert list(a) == list(b)
    assert all(a[key].equal(b[key]) for key in a)
    assert operator.corners(shape.sizes) == ours.corners(shape.sizes)
    corner, sizes = next(iter(ours.corners(shape.sizes).items()))
    c, d = (o.make_corner(corner, sizes, seed=9, device="cpu") for o in (operator, ours))
    assert all(c[key].equal(d[key]) for key in c)
    assert operator.work(sizes).bytes_total == 0
