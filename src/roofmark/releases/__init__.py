"""Releases: frozen sets of operators, shapes, weights and rooflines. `names()` lists them, `load(NAME|DIR)` gives one.

The operators' folders are the source of the release that comes with Roofmark; `build` freezes them into a directory.
"""

from __future__ import annotations

from roofmark.releases.build import Built, build
from roofmark.releases.diff import diff
from roofmark.releases.frozen import names
from roofmark.releases.load import load
from roofmark.releases.records import Change, Release, ReleaseOperator, ReleaseShape, Totals, Verified
from roofmark.releases.totals import totals
from roofmark.releases.verify import verify

__all__ = [
    "Built",
    "Change",
    "Release",
    "ReleaseOperator",
    "ReleaseShape",
    "Totals",
    "Verified",
    "build",
    "diff",
    "load",
    "names",
    "totals",
    "verify",
]
