"""What an oracle says of one output."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor


@dataclass(frozen=True)
class Expected:
    """The right rows of one output and how far from them a right answer may lie.

    value: float64 (or an integer dtype), [rows, …] as the output's rows.
    bound: float64, same shape: the largest right |y - value| by the operator's own error model;
        None means exact. Where `replaces_tolerance` is set the bound stands alone (fp8 outputs),
        else the paper's 1e-2 + 5e-2·|y| must hold too.
    """

    value: Tensor
    bound: Tensor | None
    replaces_tolerance: bool = False
