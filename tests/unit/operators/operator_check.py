"""What the tests of the operators share: sizes to run at, the rule for an answer, chosen rows of inputs."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from roofmark import operators
from roofmark.operators import Operator, Sizes
from roofmark.records import Shape

NAMES = (
    "attention_forward",
    "block_scaled_mm",
    "moe_topk_gating_softmax",
    "paged_attention_decode",
    "rms_norm",
    "silu_and_mul",
)
# The inputs that have a row for each row of the output.
ROW_INPUTS = {
    "attention_forward": ("q",),
    "block_scaled_mm": ("a", "a_scales"),
    "moe_topk_gating_softmax": ("gating",),
    "paged_attention_decode": ("query", "block_tables", "context_lens"),
    "rms_norm": ("x",),
    "silu_and_mul": ("x",),
}
SEED = 0x6E3F_90B2_57C1_04D8_A1B6_2C7D_8E9F_1357
PUBLISHED = Path(os.environ.get("ROOFMARK_PUBLISHED", Path(__file__).resolve().parents[3] / ".." / "shared" / "data"))

Outputs = dict[str, Tensor]


def published(name: str) -> list[dict[str, Any]]:
    """The published rows of an operator; skips the test where the figures are not at hand."""
    path = PUBLISHED / "published_shapes.jsonl"
    if not path.is_file():
        pytest.skip(f"no {path}: name its folder in ROOFMARK_PUBLISHED")
    rows = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    return [row for row in rows if row["operator"] == name]


def small_sizes(shape: Shape) -> Sizes:
    """The sizes of a shape on this machine: its stand-in's where it has one."""
    return {**shape.sizes, **(shape.stand_in or {})}


def cost(operator: Operator, sizes: Sizes) -> float:
    """Seconds that the PyTorch reference should take on two CPU cores, for the rule of stand-ins.

    Measured on a shared server: matrix products at 150 GFLOP/s, all else at 0.5 GB of compulsory bytes a second.
    """
    work = operator.work(sizes)
    products = operator.name in ("attention_forward", "block_scaled_mm")
    return work.bytes_total / 0.5e9 + (sum(work.flops.values()) / 150e9 if products else 0.0)


def reference(operator: Operator, shape: Shape) -> nn.Module:
    """The reference `Model`, made from its source as an agent sees it."""
    namespace: dict[str, Any] = {"__name__": f"reference_{operator.name}"}
    exec(compile(operator.reference_text(), f"{operator.name}/reference.py", "exec"), namespace)
    model: nn.Module = namespace["Model"](**shape.init)
    return model


def run(model: nn.Module, operator: Operator, inputs: Mapping[str, Tensor]) -> Outputs:
    """The outputs by name."""
    made = model(*inputs.values())
    return dict(zip(operator.spec.outputs, made if isinstance(made, tuple) else (made,), strict=True))


def some_rows(count: int, most: int = 65) -> Tensor:
    """All rows, or `most` of them that include the first and the last."""
    if count <= most:
        return torch.arange(count)
    generator = torch.Generator().manual_seed(count)
    middle = torch.randperm(count - 2, generator=generator)[: most - 2] + 1
    return torch.cat([torch.tensor([0]), middle.sort().values, torch.tensor([count - 1])])


def chosen(operator: Operator, inputs: Mapping[str, Tensor], index: Tensor) -> dict[str, Tensor]:
    """The inputs with those that have a row per output row cut down to the rows `index`."""
    rows = ROW_INPUTS[operator.name]
    return {name: value[index] if name in rows else value for name, value in inputs.items()}


@dataclass(frozen=True)
class Judge:
    """The rows `index` of one set of inputs, with what is right there, worked out once."""

    operator: Operator
    inputs: Mapping[str, Tensor]
    sizes: Sizes
    index: Tensor
    expected: Mapping[str, Any]

    def fault(self, rows: Outputs) -> str:
        """What is wrong with the output rows, by the two rules that both must hold; "" if nothing."""
        said = self.operator.judge_rows(self.inputs, self.sizes, self.index, rows)
        if said is not None:
            return said
        for name, expected in self.expected.items():
            error = (rows[name].double() - expected.value).abs()
            paper = 1e-2 + 5e-2 * expected.value.abs()
            if not (error <= paper).all():  # NaN is not close
                return f"{name} is off by {(error / paper).max().item():.3g} of the paper's tolerance"
            if not (error <= expected.bound).all():
                return f"{name} is off by {(error / expected.bound).max().item():.3g} of the operator's bound"
        return ""


def judge(operator: Operator, inputs: Mapping[str, Tensor], sizes: Sizes, most: int = 65) -> Judge:
    """The judge of all rows, or of `most` of them, on the device of the inputs."""
    device = next(iter(inputs.values())).device
    index = some_rows(operator.outputs(sizes)[0].shape[0], most).to(device)
    return Judge(operator, inputs, sizes, index, operator.expected_rows(inputs, sizes, index))


def extremes(name: str) -> list[Any]:
    """The shapes of least and of most work, as parameters of a test; all others too, marked slow."""
    operator = operators.load(name)
    order = sorted(operator.shapes, key=lambda s: operator.work(s.sizes).bytes_total)
    few = {order[0].shape_id, order[-1].shape_id}
    return [
        pytest.param(name, s.shape_id, marks=[] if s.shape_id in few else [pytest.mark.slow], id=f"{name}-{s.shape_id}")
        for s in operator.shapes
    ]


Candidate = Callable[[Mapping[str, Tensor], Sizes], Tensor | tuple[Tensor, ...] | None]
