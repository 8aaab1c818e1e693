"""Verdicts to numbers, from the records of a run alone: no torch, no device, the same on any machine.

`score_run(manifest, verdicts, calibrations)` gives a `RunScore`; `compare_guard(manifests)` refuses to rank
together what was not measured alike. The meaning of every figure: docs/scoring.md.
"""

from roofmark.score.compare import compare_guard
from roofmark.score.limits import run_roofline
from roofmark.score.runs import score_run
from roofmark.score.table import TABLE, Row

__all__ = ["TABLE", "Row", "compare_guard", "run_roofline", "score_run"]
