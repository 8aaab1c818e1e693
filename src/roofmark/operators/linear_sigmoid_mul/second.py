"""`linear_sigmoid_mul` a second time: products split along k, sums begun with the bias, gates by logarithms."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

SPLITS = 8
# Elements of the output worked on at once, in float32 or float64 a few times over.
CHUNK = 1 << 25


def second(inputs: Mapping[str, Tensor], sizes: Mapping[str, Any]) -> Tensor:
    """`y` [T, O]; tokens in chunks, each transposed: one column for one token."""
    x, weight, bias, factor = (inputs[name] for name in ("x", "weight", "bias", "m"))
    tokens, features = factor.shape
    # split s holds the columns s, s + SPLITS, .. of k
    shares = [weight[:, split::SPLITS].float() for split in range(SPLITS)]
    y = torch.empty_like(factor)
    step = max(1, CHUNK // features)
    for start in range(0, tokens, step):
        rows = slice(start, start + step)
        z = bias.float().unsqueeze(1).repeat(1, len(factor[rows]))
        for split, share in enumerate(shares):
            z.addmm_(share, x[rows, split::SPLITS].float().t())
        y[rows] = _gated(factor[rows], z.t())
    return y


def _gated(factor: Tensor, z: Tensor) -> Tensor:
    """m times the sigmoid of z: the size of m and -log(1 + e^-z) added up as logarithms, then one exponential.

    In float64, for an error of a logarithm is one of the result's share. Where m is 0 its logarithm is -inf.
    """
    size = factor.double().abs().log_()
    size -= torch.logaddexp(torch.zeros((), dtype=torch.float64, device=z.device), -z.double())
    return torch.copysign(size.exp_(), factor.double()).to(factor.dtype)
