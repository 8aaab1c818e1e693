"""Every operator has a page, and a stale, missing or stray one fails the check."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from roofmark import hardware, operators

DOCS = Path(__file__).resolve().parents[3] / "docs"


def check(docs: Path) -> subprocess.CompletedProcess[str]:
    """`python docs/generate.py --check` on a copy of the docs."""
    command = [sys.executable, str(docs / "generate.py"), "--check"]
    return subprocess.run(command, capture_output=True, text=True, check=False)


@pytest.fixture(scope="module")
def docs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("docs") / "docs"
    shutil.copytree(DOCS, place)
    (place.parent / "results").symlink_to(DOCS.parent / "results")  # a page has a table of theirs
    return place


def test_a_page_says_what_an_operator_is() -> None:
    assert {p.stem for p in (DOCS / "operators").glob("*.md")} == set(operators.names())
    for name in operators.names():
        operator = operators.load(name)
        text = (DOCS / "operators" / f"{name}.md").read_text(encoding="utf-8")
        assert operator.spec.formula in text
        assert "def forward(" in text
        assert f"| weight | {operator.provenance.weight:.6f} |" in text
        assert all(f"\n| {shape.shape_id} | " in text for shape in operator.shapes)
        assert all(f"`{gpu}`" in text for gpu in hardware.names())
        assert "Nothing is written down" not in text


def test_stale_missing_and_stray_pages_fail_the_check(docs: Path) -> None:
    fresh = check(docs)
    assert (fresh.returncode, fresh.stderr) == (0, "")
    pages = docs / "operators"
    with (pages / "mrope.md").open("a") as page:
        page.write("An edit.\n")
    (pages / "l2_norm.md").unlink()
    (pages / "no_operator.md").write_text("A page of nothing.\n")
    stale = check(docs)
    assert stale.returncode == 1
    assert stale.stderr.startswith("stale: ")
    assert all(name in stale.stderr for name in ("mrope.md", "l2_norm.md", "no_operator.md"))
