"""What the tests of the examples share: loading one, sizes to run at, and the operator's own rule."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from typing import Any

import torch

from roofmark import operators

EXAMPLES = Path(__file__).parents[3] / "examples"
SEED = 0x51C7_A90E_33D8_4F02
INIT: dict[str, dict[str, Any]] = {
    "rms_norm": {"eps": 1e-6},
    "silu_and_mul": {},
    "attention_forward": {},
    "paged_attention_decode": {},
    "block_scaled_mm": {"group_n": 128, "group_k": 128},
    "moe_topk_gating_softmax": {"top_k": 8},
}
_PAGED = {"ctx_len": 70, "num_query_heads": 8, "num_kv_heads": 2, "block_size": 16}
# One row, odd tails, the widths that the release has; the first of each is where the corner cases run.
DIMS: dict[str, list[dict[str, Any]]] = {
    "rms_norm": [
        {"token_count": 37, "hidden_size": 1152},
        {"token_count": 1, "hidden_size": 8192},
        {"token_count": 301, "hidden_size": 128},
    ],
    "silu_and_mul": [{"shape": [3, 3076]}, {"shape": [1, 1536]}, {"shape": [5, 14]}],
    "attention_forward": [
        {"num_heads": 2, "head_dim": 72, "seq_lens": [130, 1, 97]},
        {"num_heads": 1, "head_dim": 128, "seq_lens": [300]},
    ],
    "paged_attention_decode": [
        {**_PAGED, "num_seqs": 2, "head_size": 128, "dtype": "bf16"},
        {**_PAGED, "num_seqs": 1, "ctx_len": 400, "head_size": 256, "dtype": "fp16"},
    ],
    "block_scaled_mm": [{"m": 70, "n": 384, "k": 256}, {"m": 1, "n": 128, "k": 512}, {"m": 401, "n": 128, "k": 128}],
    "moe_topk_gating_softmax": [
        {"token_count": 37, "num_experts": 128},
        {"token_count": 1, "num_experts": 128},
        {"token_count": 133, "num_experts": 256},
    ],
}
# No tokens at all: no oracle draws such inputs.
EMPTY: dict[str, tuple[torch.Tensor, ...]] = {
    "rms_norm": (torch.empty(0, 128).bfloat16(), torch.ones(128).bfloat16()),
    "silu_and_mul": (torch.empty(0, 256).bfloat16(),),
    "attention_forward": (*[torch.empty(0, 2, 72).bfloat16()] * 3, torch.zeros(1, dtype=torch.int32)),
    "paged_attention_decode": (
        torch.empty(0, 8, 128).bfloat16(),
        torch.empty(4, 2, 16, 16, 8).bfloat16(),
        torch.empty(4, 2, 128, 16).bfloat16(),
        torch.empty(0, 3, dtype=torch.int32),
        torch.empty(0, dtype=torch.int32),
    ),
    "block_scaled_mm": (
        torch.empty(0, 256).to(torch.float8_e4m3fn),
        torch.zeros(128, 256).to(torch.float8_e4m3fn),
        torch.empty(0, 2),
        torch.ones(1, 2),
    ),
    "moe_topk_gating_softmax": (torch.empty(0, 128),),
}


def example(language: str, name: str) -> Any:
    """The example's module."""
    path = EXAMPLES / language / f"{name}.py"
    spec = importlib.util.spec_from_file_location(f"example_{language}_{name}", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # numba's cache finds functions by their module's name
    spec.loader.exec_module(module)
    return module


def runs(name: str) -> list[tuple[str, str, dict[str, Any]]]:
    """(title, corner or "", sizes) of every run that an example must be right in."""
    plain = [(f"{'-'.join(map(str, d.values()))}", "", {**d, **INIT[name]}) for d in DIMS[name]]
    return plain + [(c, c, s) for c, s in operators.load(name).corners(plain[0][2]).items()]


def fault(model: torch.nn.Module, name: str, corner: str, sizes: dict[str, Any], device: str = "cpu") -> str:
    """What is wrong with the model's outputs at these sizes; "" if nothing."""
    operator = operators.load(name)
    draw = {"seed": SEED, "device": device}
    inputs = operator.make_corner(corner, sizes, **draw) if corner else operator.make_inputs(sizes, **draw)
    made = model(*inputs.values())
    outputs = dict(zip(operator.spec.outputs, made if isinstance(made, tuple) else (made,), strict=True))
    for spec in operator.outputs(sizes):
        got = outputs[spec.name]
        if (tuple(got.shape), str(got.dtype)) != (spec.shape, f"torch.{spec.dtype}"):
            return f"{spec.name} is {tuple(got.shape)} {got.dtype}"
    index = torch.arange(operator.outputs(sizes)[0].shape[0], device=device)
    said = operator.judge_rows(inputs, sizes, index, outputs)
    if said is not None:
        return said
    for key, expected in operator.expected_rows(inputs, sizes, index).items():
        error = (outputs[key].double() - expected.value).abs()
        most = torch.minimum(expected.bound, 1e-2 + 5e-2 * expected.value.abs())
        if not (error <= most).all():  # NaN is not close
            return f"{key} is off by {(error / most).max().item():.3g} of its bound"
    return ""
