"""FLOPs and compulsory bytes of `layer_norm`. Formulas: arXiv 2607.14541 and its data set."""

from __future__ import annotations

import math
from collections.abc import Sequence

from roofmark.records import Work


def work(*, shape: Sequence[int]) -> Work:
    """Seven operations for each element; read x, weight and bias, write y, two bytes each."""
    values = math.prod(shape)
    return Work(flops={"bf16": 7 * values}, bytes_read=2 * values + 4 * shape[-1], bytes_written=2 * values)


work_published = work
