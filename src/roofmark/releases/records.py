"""The frozen records of a release: its shapes with all that is known of them, and what was found out about it."""

from __future__ import annotations

from statistics import median
from typing import Any

from roofmark.hardware import regime
from roofmark.records import Baseline, Record, Roofline, Work


class ReleaseShape(Record):
    """One shape with its works, its bounds and what it weighs.

    `t_sol_us` has the bound of `work`, which scores, on each GPU of the release's constants, by the catalogue's
    names; `t_sol_published_us` those of `work_published`. `weight` is that of the operator. `errata` says why
    the two works differ, and is empty where they do not.
    """

    operator: str
    shape_id: str
    dims: dict[str, Any]
    init: dict[str, Any]
    dtype: str
    framework: str
    work: Work
    work_published: Work
    t_sol_us: dict[str, float]
    t_sol_published_us: dict[str, float]
    weight: float
    baseline: tuple[Baseline, ...]
    errata: tuple[str, ...]

    @property
    def sizes(self) -> dict[str, Any]:
        """`init` and `dims` in one mapping."""
        return {**self.init, **self.dims}


class ReleaseOperator(Record):
    """One operator of a release. `framework` and `symbol` name the deployed kernel; `texts` has hashes of its files."""

    name: str
    title: str
    formula: str
    dtype: str
    phase: str
    framework: str
    symbol: str
    weight: float
    texts: dict[str, str]
    shapes: tuple[ReleaseShape, ...]

    @property
    def upstream(self) -> str:
        """The framework that is named first: where an operator is deployed by two, it counts for that one."""
        return self.framework.split("/")[0]

    @property
    def regime(self) -> str:
        """What bounds the operator by the median intensity of its shapes: `memory`, `compute` or `index`."""
        return regime(median(shape.work.intensity for shape in self.shapes)).value


class Release(Record):
    """A frozen set. `kind` says what it was read from: `source`, `build` or `five files` that somebody else wrote."""

    name: str
    date: str
    kind: str
    content_sha256: str
    constants: dict[str, Roofline]
    weights: dict[str, float]
    operators: tuple[ReleaseOperator, ...]

    @property
    def shapes(self) -> tuple[ReleaseShape, ...]:
        """The shapes of all operators."""
        return tuple(shape for operator in self.operators for shape in operator.shapes)


class Totals(Record):
    """A release in a few figures.

    `frameworks` and `dtypes` count shapes and operators. `deployed_s` and `deployed_s_published` are the deployed
    kernels' own S_agg on each GPU with times, by the work that scores and by the published one.
    """

    operators: int
    shapes: int
    weight: float
    regimes: dict[str, int]
    dtypes: dict[str, int]
    frameworks: dict[str, int]
    backends: dict[str, int]
    deployed_s: dict[str, float]
    deployed_s_published: dict[str, float]


class Change(Record):
    """One difference between two releases. `shape_id` is empty for what belongs to the operator or to all of it."""

    operator: str
    shape_id: str
    field: str
    before: Any
    after: Any


class Verified(Record):
    """What a look at every file of a release said; `problems` is empty where all is as it was frozen."""

    name: str
    content_sha256: str
    files: int
    problems: tuple[str, ...]
