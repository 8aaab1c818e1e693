"""The lint passes what is right, and fails whatever is broken on purpose in a copy of an operator's folder."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from roofmark import operators
from roofmark.errors import ProblemError
from roofmark.evaluate.lint import OperatorProof, ShapeProof, lint, plan
from roofmark.evaluate.lint.proof import operator_proof
from roofmark.operators import Operator, zoo

SMALLEST = {
    "attention_forward": "11",
    "fp8_dynamic_per_token_quant": "11",
    "moe_topk_gating_softmax": "0",
    "mrope": "3",
    "paged_attention_decode": "1",
    "rms_norm": "15",
    "silu_and_mul": "1",
}


def edited(root: Path, name: str, *edits: tuple[str, str, str], **files: str) -> Operator:
    """A copy of an operator with texts of its files replaced, and with whole files added."""
    folder = root / name
    shutil.copytree(operators.HERE / name, folder, ignore=shutil.ignore_patterns("__pycache__"))
    for file, old, new in edits:
        text = (folder / file).read_text(encoding="utf-8")
        assert text.count(old) >= 1, f"{file} does not hold {old!r}"
        (folder / file).write_text(text.replace(old, new), encoding="utf-8")
    for stem, text in files.items():
        (folder / f"{stem}.py").write_text(text, encoding="utf-8")
    return operators.load(name, root)


def proof_of(operator: Operator, *, strict: bool = False) -> OperatorProof:
    shape = operator.shape(SMALLEST[operator.name])
    (proof,) = lint([(operator, [shape])], device="cpu", watch=lambda _: None, strict=strict)
    return proof


def faults(operator: Operator) -> list[str]:
    return [f"{fault.case}: {fault.title}: {fault.message}" for fault in proof_of(operator).faults]


@pytest.mark.parametrize(
    ("name", "file", "old", "new"),
    [
        ("rms_norm", "reference.py", "+ self.eps", "+ 0.0"),
        ("rms_norm", "reference.py", "* weight.float()", "* weight.float().abs()"),
        ("silu_and_mul", "reference.py", "functional.silu(gate)", "functional.gelu(gate)"),
        ("paged_attention_decode", "reference.py", "d**-0.5", "d**-0.4"),
        ("moe_topk_gating_softmax", "reference.py", "torch.softmax(gating, dim=-1)", "torch.sigmoid(gating)"),
    ],
)
def test_a_wrong_reference_fails(tmp_path: Path, name: str, file: str, old: str, new: str) -> None:
    said = faults(edited(tmp_path, name, (file, old, new)))
    assert any(line.startswith("shape: reference: ") for line in said)


@pytest.mark.parametrize(
    ("name", "old", "new"),
    [
        ("rms_norm", '{"y": Expected(value, bound)}', '{"y": Expected(value, bound * 10)}'),
        ("silu_and_mul", '{"y": Expected(value, bound)}', '{"y": Expected(value, bound * 10)}'),
        ("attention_forward", '{"out": Expected(value, bound)}', '{"out": Expected(value, bound * 10)}'),
        ("paged_attention_decode", '{"out": Expected(value, bound)}', '{"out": Expected(value, bound * 10)}'),
        ("moe_topk_gating_softmax", "FLOAT32 = 2.0**-15", "FLOAT32 = 10 * 2.0**-15"),
    ],
)
def test_a_tolerance_that_is_ten_times_looser_fails(tmp_path: Path, name: str, old: str, new: str) -> None:
    assert faults(operators.load(name)) == []
    said = faults(edited(tmp_path, name, ("oracle.py", old, new)))
    assert any("is wrong and passes" in line for line in said)


def test_a_tolerance_that_no_wrong_answer_meets_fails(tmp_path: Path) -> None:
    close = '    "weights in 12 bits": _changed(lambda w, e, s: (significant(w, 12), e)),\n'
    said = faults(edited(tmp_path, "moe_topk_gating_softmax", ("zoo.py", close, "")))
    assert said == ["operator: tolerance of FLOAT32: no wrong answer fails under it and passes under ten times it"]


def test_a_checker_names_its_tolerance(tmp_path: Path) -> None:
    said = faults(edited(tmp_path, "moe_topk_gating_softmax", ("zoo.py", '("FLOAT32",)', "()")))
    assert any("TOLERANCES" in line for line in said)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("WRONG: dict[str, Candidate] = {", 'WRONG: dict[str, Candidate] = {"mine": lambda i, s: _rounded(i, s),'),
        ("RNERS: dict[tuple[str, str], Candidate] = {}", 'RNERS = {("large", "mine"): _rounded}'),
        ("SPECIAL: dict[str, Candidate] = {", 'SPECIAL: dict[str, Candidate] = {"mine": _rounded,'),
    ],
)
def test_a_wrong_answer_that_passes_is_a_fault(tmp_path: Path, old: str, new: str) -> None:
    said = faults(edited(tmp_path, "rms_norm", ("zoo.py", old, new)))
    assert len(said) == 1
    assert "mine: is wrong and passes" in said[0]


@pytest.mark.parametrize(
    ("file", "old", "new", "fault"),
    [
        ("zoo.py", "RIGHT: dict[str, Candidate] = {", 'RIGHT = {"mine": WRONG["no eps"],', "mine: is right and fails"),
        ("zoo.py", "RIGHT: dict[str, Candidate] = {", 'RIGHT = {"mine": lambda i, s: i["x"].float(),', "should be"),
        ("zoo.py", "RIGHT: dict[str, Candidate] = {", 'RIGHT = {"mine": lambda i, s: i["gone"],', "KeyError"),
        ("zoo.py", "RNERS: dict[tuple[str, str], Candidate] = {}", 'RNERS = {("gone", "mine"): _rounded}', "no corner"),
        ("inputs.py", '_weight(draw, hidden_size)}', 'torch.rand(hidden_size).bfloat16()}', "differs under one seed"),
        ("inputs.py", '_weight(draw, hidden_size)}', '_weight(Draw(1, "cpu"), hidden_size)}', "same under two seeds"),
        ("inputs.py", '"weight": _weight', '"w": _weight', "forward takes x, weight"),
        ("inputs.py", 'dtype="bfloat16"', 'dtype="float16"', "float16"),
        ("reference.py", "wide = x.float()", "wide = x.mul_(2).float()", "changes input x"),
        ("reference.py", ".to(x.dtype)", ".to(x.dtype).T.contiguous().T", "with strides"),
        ("reference.py", "* inverse_rms", "* inverse_rms * x.sum().log().float()", "NaN"),
        ("oracle.py", ".add_(FLUSHED)", ".mul_(1 + 0.02 / len(index)).add_(FLUSHED)", "few rows alone"),
        ("oracle.py", "def neighbours(", "def gone(", "has no attribute 'neighbours'"),
        ("inputs.py", "def corners(", "def gone(", "has no attribute 'corners'"),
        ("reference.py", "class Model", "class class Model", "is no Python"),
        ("reference.py", "def __init__(self, eps", "def __init__(self, epsilon", "unexpected keyword"),
    ],
)  # fmt: skip
def test_what_else_is_broken_is_a_fault(tmp_path: Path, file: str, old: str, new: str, fault: str) -> None:
    assert any(fault in line for line in faults(edited(tmp_path, "rms_norm", (file, old, new))))


def test_the_reference_in_float64_is_held_to_the_declared_types() -> None:
    proof = proof_of(operators.load("fp8_dynamic_per_token_quant"))
    assert proof.faults == ()
    assert "shape: in float64" in proof.shapes[0].passed


def test_rows_may_lie_in_another_dimension(tmp_path: Path) -> None:
    assert faults(operators.load("mrope")) == []
    assert faults(edited(tmp_path, "mrope", ("zoo.py", 'ROW_DIMS = {"cos": 1, "sin": 1}', "")))


SECOND = """
def second(inputs, sizes):
    gate, up = inputs["x"].double().chunk(2, dim=-1)
    return (gate / (1 + (-gate).exp()) * up).bfloat16()
"""


def test_a_second_implementation_must_be_right(tmp_path: Path) -> None:
    right = proof_of(edited(tmp_path / "right", "silu_and_mul", second=SECOND), strict=True)
    assert right.second
    assert right.faults == ()
    assert "corner:tail: second" in right.shapes[0].passed
    wrong = edited(tmp_path / "wrong", "silu_and_mul", second=SECOND.replace("1 +", "1.1 +"))
    assert any("second: is right and fails" in line for line in faults(wrong))


def test_a_missing_second_implementation_is_told_and_fails_where_that_is_asked_for(tmp_path: Path) -> None:
    operator = edited(tmp_path, "silu_and_mul")
    (operator.folder / "second.py").unlink()
    assert not proof_of(operator).second
    assert [fault.title for fault in proof_of(operator, strict=True).faults] == ["second.py"]


def test_an_operator_without_a_zoo_has_no_proof(tmp_path: Path) -> None:
    operator = edited(tmp_path, "rms_norm", zoo="ROWS = ()\n")
    with pytest.raises(ProblemError, match="has no WRONG, a dict"):
        zoo.load(operator)
    shutil.copytree(operators.HERE / "rms_norm", tmp_path / "other" / "rms_norm")
    (tmp_path / "other" / "rms_norm" / "zoo.py").unlink()
    with pytest.raises(ProblemError, match="has no zoo"):
        zoo.load(operators.load("rms_norm", tmp_path / "other"))


def test_a_wrong_answer_that_is_one_nowhere_is_a_fault() -> None:
    shape = ShapeProof(operator="o", shape_id="0", dims={}, stand_in=False, device="cpu", seed=0, killed={"a": None})
    assert operator_proof("o", 1, ("a",), False, (shape,)).faults == ()
    (fault,) = operator_proof("o", 1, ("a", "b"), False, (shape,)).faults
    assert (fault.title, fault.message) == ("b", "is a mistake on no shape")
    assert operator_proof("o", 2, ("a", "b"), False, (shape,)).faults == ()  # another shape may show it


@pytest.mark.slow
def test_jobs_in_processes_say_the_same() -> None:
    operator = operators.load("silu_and_mul")
    chosen = [(operator, [operator.shape("0"), operator.shape("1")])]
    steps: list[str] = []
    one, two = (lint(chosen, device="cpu", watch=lambda s: steps.append(s.what), jobs=n)[0] for n in (1, 2))
    for left, right in zip(one.shapes, two.shapes, strict=True):
        assert (left.shape_id, left.killed, left.passed) == (right.shape_id, right.killed, right.passed)
    assert len(steps) == 4


def test_each_distinct_corner_case_is_run_once() -> None:
    operator = operators.load("rms_norm")
    tasks = plan(operator, operator.shapes[:5], "cpu", 0)
    assert len(tasks[0].corners) > 5
    assert all(task.corners == () for task in tasks[1:])


def test_what_proves_an_operator_is_no_part_of_its_contents(tmp_path: Path) -> None:
    operator = edited(tmp_path / "a", "rms_norm")
    plain = operators.content_sha256(tmp_path / "a")
    (operator.folder / "zoo.py").write_text("ROWS = ()\n", encoding="utf-8")
    (operator.folder / "second.py").write_text("", encoding="utf-8")
    assert operators.content_sha256(tmp_path / "a") == plain
