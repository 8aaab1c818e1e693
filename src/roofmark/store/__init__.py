"""Runs on disk: `open_run` to write or resume one, `load_run` to read one, `find_runs` to list them.

    with open_run(path, manifest) as run:
        for subject, operator, shape_id in pending(run):
            append_verdict(run, judge(subject, operator, shape_id))

Every refusal is a `StoreError` of one line.
"""

from roofmark.store.artefacts import save_artefact
from roofmark.store.identity import check_same_run
from roofmark.store.listing import RunSummary, find_runs
from roofmark.store.run import (
    Run,
    StoredRun,
    append_calibration,
    append_verdict,
    load_run,
    open_run,
    pending,
)

__all__ = [
    "Run",
    "RunSummary",
    "StoredRun",
    "append_calibration",
    "append_verdict",
    "check_same_run",
    "find_runs",
    "load_run",
    "open_run",
    "pending",
    "save_artefact",
]
