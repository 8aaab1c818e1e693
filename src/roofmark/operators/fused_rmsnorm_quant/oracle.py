"""The judge's side of `fused_rmsnorm_quant`: a checker of codes and scales under each right way to round."""

from __future__ import annotations

import random
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from roofmark.operators import fp8
from roofmark.operators.draw import chunks, near
from roofmark.operators.expected import Expected

EPS = 1e-6
# A scale, relative.
SCALE = 1e-3
# float32 sums in any order, an approximate reciprocal root, products and quotients: relative.
FLOAT32 = 2.0**-16
# Whether the sum, its quotient by the root and y are rounded to bfloat16: the reference's way, then that of a chain
# of kernels and that of a fused one which rounds as the chain does, then the other ways.
WAYS = (
    (True, False, False),
    (True, True, True),
    (False, True, True),
    (False, False, False),
    (True, True, False),
    (True, False, True),
    (False, True, False),
    (False, False, True),
)


def neighbours(rng: random.Random, **sizes: Any) -> tuple[dict[str, Any], dict[str, Any]]:
    first, second = near(rng, sizes["token_count"])
    return {**sizes, "token_count": first}, {**sizes, "token_count": second}


def expected_rows(inputs: Mapping[str, Tensor], sizes: Mapping[str, Any], index: Tensor) -> dict[str, Expected]:
    """The outputs' rows `index` with nothing rounded on the way: one right answer of several."""
    dtype = fp8.kind(inputs["x"].device)
    added = torch.empty((len(index), sizes["hidden_size"]), dtype=torch.float64, device=index.device)
    q, scale = torch.empty_like(added), torch.empty_like(added[:, 0])
    for part in chunks(len(index), 64 * sizes["hidden_size"]):
        added[part] = inputs["x"][index[part]].double() + inputs["residual"][index[part]].double()
        y = added[part] * _inverse_root(added[part]) * inputs["weight"].double()
        scale[part] = y.abs().amax(-1) / fp8.largest(dtype)
        divisor = torch.where(scale[part] > 0, scale[part], 1.0).unsqueeze(-1)
        q[part] = fp8.rounded(y / divisor, dtype)
    return {
        "q": Expected(q, None),
        "scale": Expected(scale, scale * SCALE, replaces_tolerance=True),
        "residual": Expected(added, added.abs() * torch.finfo(torch.bfloat16).eps / 2),
    }


def judge_rows(
    inputs: Mapping[str, Tensor], sizes: Mapping[str, Any], index: Tensor, outputs: Mapping[str, Tensor]
) -> str:
    """What is wrong with the outputs, rows `index` in their order; "" if nothing.

    The new residual is the sum rounded to bfloat16. Codes and scale of a row are right if they are under one of
    the ways to round: deployed kernels take different ones.
    """
    for part in chunks(len(index), 64 * sizes["hidden_size"]):
        rows = index[part]
        added = inputs["x"][rows].double() + inputs["residual"][rows].double()
        stored = outputs["residual"][part].double()
        said = _judge_residual(added, stored, rows)
        if said:
            return said
        q, scale = outputs["q"][part].unsqueeze(1), outputs["scale"][part].unsqueeze(1)
        left = torch.arange(len(rows), device=rows.device)
        for way in WAYS:
            y = _normed((stored if way[0] else added)[left], inputs["weight"].double(), *way[1:])
            scales, codes = fp8.judge(y, q[left], scale[left], scale_tolerance=SCALE, tie=FLOAT32)
            left = left[~(scales.all(-1) & codes.flatten(1).all(-1))]
            if not len(left):
                break
        else:
            one = left[:1]
            y = _normed(stored[one], inputs["weight"].double(), *WAYS[0][1:])
            said = fp8.fault(y, q[one], scale[one], rows[one], scale_tolerance=SCALE, tie=FLOAT32)
            return f"{said}, and no other way to round makes the row right"
    return ""


def _judge_residual(added: Tensor, got: Tensor, rows: Tensor) -> str:
    low, high = _rounded(added - added.abs() * FLOAT32), _rounded(added + added.abs() * FLOAT32)
    wrong = ~((got >= low) & (got <= high))  # NaN is neither
    if not bool(wrong.any()):
        return ""
    row, column = (int(n) for n in wrong.nonzero()[0])
    want = float(added[row, column])
    return f"residual[{int(rows[row])}, {column}] is {got[row, column].item():.9g}, should be {want:.9g} in bfloat16"


def _rounded(values: Tensor) -> Tensor:
    return values.to(torch.bfloat16).double()


def _inverse_root(added: Tensor) -> Tensor:
    return torch.rsqrt(added.square().mean(-1, keepdim=True) + EPS)


def _normed(added: Tensor, weight: Tensor, quotient_rounded: bool, y_rounded: bool) -> fp8.Magnitudes:
    """Where |y| lies under one way to round, [rows, 1, H]: both ends, rounded to bfloat16 as the way says."""
    size = added.abs() * _inverse_root(added)
    ends = []
    for end in (size * (1 - FLOAT32), size * (1 + FLOAT32)):
        product = (_rounded(end) if quotient_rounded else end) * weight.abs()
        ends.append((_rounded(product) if y_rounded else product).unsqueeze(1))
    return fp8.Magnitudes(ends[0], ends[1], ((added < 0) != (weight < 0)).unsqueeze(1))
