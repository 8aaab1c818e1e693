"""What a lint says of operators: which right answers passed, which wrong ones failed, how sharp the judge is."""

from __future__ import annotations

from typing import Any

from pydantic import Field

from roofmark.records import Record


class Fault(Record):
    """One thing that does not hold. `case` is `shape`, `seed 2`, `corner:NAME`, `neighbour 1` or `operator`."""

    operator: str
    shape_id: str
    case: str
    title: str
    message: str

    @property
    def line(self) -> str:
        """The fault in one line."""
        return f"{self.operator} {self.shape_id}, {self.case}: {self.title}: {self.message}"


class ShapeProof(Record):
    """What came out on one shape.

    `held` are the cases on which the reference is right, `passed` the right answers by another way that passed.
    `killed` has the wrong answers that failed, with their largest error as a share of what is allowed; None where
    a checker, an exact rule or a NaN failed them. `late` says on how many seeds those of them pass that failed on
    most alone. `same` equal the right answer bit by bit, `not_run` says which did not apply and why. `sharp` names,
    for each tolerance, a wrong answer that fails under it and passes under ten times it; None where there is none.
    `worst_ratio` is the largest error of a right answer. `judge_bytes` is what oracle and comparison took beyond
    what was there before, `judge_s` how long, for `rows` of `rows_of_shape` rows.
    """

    operator: str
    shape_id: str
    dims: dict[str, Any]
    stand_in: bool
    device: str
    seed: int
    rows: int = 0
    rows_of_shape: int = 0
    held: tuple[str, ...] = ()
    passed: tuple[str, ...] = ()
    killed: dict[str, float | None] = Field(default_factory=dict)
    late: dict[str, str] = Field(default_factory=dict)
    same: tuple[str, ...] = ()
    not_run: dict[str, str] = Field(default_factory=dict)
    sharp: dict[str, str | None] = Field(default_factory=dict)
    worst_ratio: float = 0.0
    draw_s: float = 0.0
    reference_s: float = 0.0
    judge_s: float = 0.0
    judge_bytes: int = 0
    wall_s: float = 0.0
    faults: tuple[Fault, ...] = ()

    @property
    def sharpest(self) -> tuple[str, float] | None:
        """The wrong answer that failed by the least, and by how much."""
        ratios = [(ratio, title) for title, ratio in self.killed.items() if ratio is not None]
        return min(ratios)[::-1] if ratios else None


class OperatorProof(Record):
    """What came out on the shapes of an operator that were asked for; `faults` holds those of the shapes too."""

    operator: str
    shapes_of_release: int
    second: bool
    shapes: tuple[ShapeProof, ...]
    faults: tuple[Fault, ...]

    @property
    def proven(self) -> int:
        """How many shapes hold."""
        return sum(not shape.faults for shape in self.shapes)


def operator_proof(
    operator: str, shapes_of_release: int, wrong: tuple[str, ...], second: bool, shapes: tuple[ShapeProof, ...],
    *, strict: bool = False,
) -> OperatorProof:  # fmt: skip
    """The shapes of an operator taken together: each tolerance sharp somewhere, each mistake one somewhere."""
    faults = [fault for shape in shapes for fault in shape.faults]

    def tell(title: str, message: str) -> None:
        faults.append(Fault(operator=operator, shape_id="all", case="operator", title=title, message=message))

    if strict and not second:
        tell("second.py", "there is no second implementation")
    whole = len(shapes) == shapes_of_release
    if not faults:
        for key in dict.fromkeys(key for shape in shapes for key in shape.sharp):
            if not any(shape.sharp.get(key) for shape in shapes):
                tell(f"tolerance of {key}", "no wrong answer fails under it and passes under ten times it")
        for title in wrong if whole else ():
            if not any(title in shape.killed for shape in shapes):
                tell(title, "is a mistake on no shape")
    return OperatorProof(
        operator=operator, shapes_of_release=shapes_of_release, second=second, shapes=shapes, faults=tuple(faults)
    )
