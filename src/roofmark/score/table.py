"""The status table: what each status does to rates, medians and the run."""

from __future__ import annotations

from typing import Literal, NamedTuple

from roofmark.records import Compiled, Gate, Status

Ended = Status | Literal["missing"]


class Row(NamedTuple):
    """What a status does. None: the shape does not count in that rate."""

    compiled: bool | None
    correct: bool | None
    in_median: Literal["s", "zero", "no"]
    complete: bool


PASSED = Row(True, True, "s", True)
SLOW = Row(True, True, "no", True)
NO_INTERVAL = Row(True, True, "zero", True)
NOT_COMPILED = Row(False, False, "no", True)
FAILED = Row(True, False, "no", True)
UNDECIDED = Row(None, None, "no", False)

TABLE: dict[Ended, Row] = {
    Status.OK: PASSED,
    Status.COMPILE_ERROR: NOT_COMPILED,
    Status.CRASH: FAILED,
    Status.TIMEOUT: FAILED,
    Status.OUT_OF_MEMORY: FAILED,
    Status.WRONG_SHAPE_OR_DTYPE: FAILED,
    Status.NOT_FINITE: FAILED,
    Status.WRONG_VALUES: FAILED,
    Status.RULE_BROKEN: FAILED,
    Status.OVER_TIME_BUDGET: SLOW,
    Status.UNSTABLE: NO_INTERVAL,
    Status.IMPOSSIBLE: UNDECIDED,
    Status.INFRASTRUCTURE: UNDECIDED,
    "missing": UNDECIDED,
}


def row(status: Ended, gate: Gate | None, compiled: Compiled) -> Row:
    """The table's row for a shape; a failure inside gate 1, or no evidence of a gate 1 passed, compiles 0.

    So a record that lacks its evidence counts as what it is and not as a pass.
    """
    found = TABLE[status]
    if found.compiled is None:
        return found
    if gate is Gate.COMPILE and status is not Status.OK:
        return NOT_COMPILED
    return found if compiled in (Compiled.ARTEFACT, Compiled.FALLBACK) else found._replace(compiled=False)
