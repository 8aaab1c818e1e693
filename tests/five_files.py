"""Sets of five files as somebody else might write them, who knows the paper and nothing of Roofmark."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

SCALE_REFERENCE = """
import torch
from torch import nn


class Model(nn.Module):
    def __init__(self, factor):
        super().__init__()
        self.factor = factor

    def forward(self, x, bias):
        return x * self.factor + bias
"""
SCALE_INPUT = """
import torch


def _make_inputs(rows, columns):
    x = torch.randn(rows, columns, dtype=torch.bfloat16)
    bias = torch.randn(columns, dtype=torch.bfloat16)
    return [x, bias]
"""
SCALE_SHAPES: Any = [
    {"shape_id": "a", "init_kwargs": {"factor": 3.0}, "input_kwargs": {"rows": 64, "columns": 256}},
    {"shape_id": "b", "init_kwargs": {"factor": 0.5}, "input_kwargs": {"rows": 7, "columns": 64}},
]
SCALE_METADATA: Any = {"weight": 0.75, "framework": "theirs", "dtype": "bf16", "shapes": 2}
SCALE_ROOFLINE: Any = {
    "a": {"flops": {"bf16": 32768}, "bytes_read": 33280, "bytes_written": 32768},
    "b": {"flops": 896, "bytes": 1920},
}

COUNT_REFERENCE = """
import torch
from torch import nn


class Model(nn.Module):
    def forward(self, x):
        return x.sum(-1), x.argmax(-1)
"""
COUNT_INPUT = """
import torch


def _make_inputs(rows):
    return {"x": torch.rand(rows, 32)}
"""
COUNT_SHAPES: Any = {"shapes": {"0": {"dims": {"rows": 5}}}}
COUNT_METADATA: Any = {"importance": 1, "baselines": [{"shape_id": "0", "gpu": "XPU-A", "time_us": 3.5}]}
COUNT_ROOFLINE: Any = {"shapes": [{"id": 0, "W": {"fp32": 160}, "Q": 700}]}


def write(folder: Path, reference: str, inputs: str, shapes: Any, metadata: Any, roofline: Any) -> Path:
    """The folder, with its five files in it."""
    folder.mkdir(parents=True)
    (folder / "reference.py").write_text(reference)
    (folder / "input.py").write_text(inputs)
    for name, data in (("shapes", shapes), ("metadata", metadata), ("roofline", roofline)):
        (folder / f"{name}.json").write_text(json.dumps(data))
    return folder


def write_set(root: Path) -> Path:
    """A set of two operators."""
    write(root / "scale", SCALE_REFERENCE, SCALE_INPUT, SCALE_SHAPES, SCALE_METADATA, SCALE_ROOFLINE)
    write(root / "count", COUNT_REFERENCE, COUNT_INPUT, COUNT_SHAPES, COUNT_METADATA, COUNT_ROOFLINE)
    return root
