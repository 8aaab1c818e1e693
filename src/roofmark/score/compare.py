"""Which runs may stand in one ranking."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from roofmark.errors import UserError
from roofmark.records import Manifest

MACHINE = ("cpu", "gpu")


def compare_guard(manifests: Sequence[Manifest]) -> None:
    """Nothing where the runs may be ranked together; `UserError` naming the first thing in which two differ.

    They must share the release, the device with its constants, and the configuration: tolerances, seeds,
    and whether an optimiser's tools were at hand. Backends and candidates are what a ranking compares.
    """
    for other in manifests[1:]:
        first, second = _facts(manifests[0]), _facts(other)
        for name in [*first, *(second.keys() - first.keys())]:
            if first.get(name) != second.get(name):
                raise UserError(
                    f"runs {manifests[0].run_id} and {other.run_id} can't be ranked together: {name} differs"
                    f" ({_short(first.get(name))}, {_short(second.get(name))})",
                    hint="each stands alone",
                )


def _facts(manifest: Manifest) -> dict[str, Any]:
    """What must be equal, by the name that a refusal gives."""
    config = {f"config.{key}": manifest.config[key] for key in sorted(manifest.config)}
    machine = {key: manifest.environment.get(key) for key in MACHINE if manifest.roofline is None}
    return {
        "the release": manifest.release_sha256,
        "the weights": manifest.release_weights,
        "the device": manifest.device,
        "the roofline": manifest.roofline,
        **machine,
        **config,
    }


def _short(value: Any) -> str:
    """A value in at most 24 characters."""
    text = str(value)
    return text if len(text) <= 24 else text[:12] + "..."
