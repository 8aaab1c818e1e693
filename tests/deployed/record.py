"""Rows of comparisons on disk, with what they were made on."""

from __future__ import annotations

import dataclasses
import json
import platform
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import packages
import torch
from compare import Row


def keep(path: Path, made: list[Row]) -> None:
    """Writes rows to a JSON file; of those in it, the ones of other kernels or sizes stay."""
    new = [json.loads(json.dumps(dataclasses.asdict(row))) for row in made]
    seen = [key(row) for row in new]
    old = json.loads(path.read_text(encoding="utf-8"))["rows"] if path.is_file() else []
    every = sorted([row for row in old if key(row) not in seen] + new, key=key)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps({"environment": environment(), "rows": every}, indent=1) + "\n", encoding="utf-8")


def key(row: dict[str, Any]) -> tuple[str, str, str, str]:
    """What tells one row from another."""
    kernel = row["kernel"]
    return row["operator"], kernel["package"], kernel["name"], json.dumps(row["sizes"], sort_keys=True)


def environment() -> dict[str, str | None]:
    """On what the kernels ran."""
    lines = Path("/proc/cpuinfo").read_text().splitlines() if Path("/proc/cpuinfo").is_file() else []
    model = next((line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")), "")
    found = {name: packages.version(package) for package, name in packages.PACKAGES.items()}
    return {
        "date": f"{datetime.now(UTC):%Y-%m-%d}", "processor": model or platform.machine(), "torch": torch.__version__,
        "triton": _version("triton"), "numpy": _version("numpy"), "python": platform.python_version(), **found,
    }  # fmt: skip


def _version(name: str) -> str | None:
    from importlib import metadata

    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None
