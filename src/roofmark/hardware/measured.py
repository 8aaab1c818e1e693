"""A GPU calibration as text: the `[measured]` table that may stand in a catalogue file."""

from __future__ import annotations

import json
from typing import Any

from roofmark.records import Calibration


def measured_toml(calibration: Calibration) -> str:
    """The `[measured]` tables of a GPU calibration as TOML; they stand beside the peaks and enter no score.

    Rates are TFLOP/s, bandwidths GB/s of bytes read and written, launch times µs; each best and median.
    """
    details = calibration.details
    lines = ["[measured]", f"taken_at = {_value(calibration.taken_at)}"]
    plain = {name: value for name, value in details.items() if not isinstance(value, dict)}
    lines += [f"{name} = {_value(value)}" for name, value in plain.items() if value is not None]
    for table, figures in details.items():
        if isinstance(figures, dict) and figures:
            lines += ["", f"[measured.{table}]"]
            lines += [f"{name} = {_value(value)}" for name, value in figures.items() if value is not None]
    return "\n".join(lines) + "\n"


def _value(value: Any) -> str:
    if isinstance(value, dict):
        inside = ", ".join(f"{name} = {_value(item)}" for name, item in value.items() if item is not None)
        return f"{{ {inside} }}"
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(_value, value))}]"
    if isinstance(value, float):
        return repr(float(f"{value:.6g}"))
    return json.dumps(value)  # strings, integers and booleans are written alike in JSON and TOML
