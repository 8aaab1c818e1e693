"""Verdicts to numbers, from the records of a run alone: no torch, no device, the same on any machine.

`score_run(manifest, verdicts, calibrations)` gives a `RunScore`. The meaning of every figure: docs/scoring.md.
"""

from roofmark.score.runs import score_run
from roofmark.score.table import TABLE

__all__ = ["TABLE", "score_run"]
