"""vLLM's C++ norms and activation, as its CPU build has them."""

from __future__ import annotations

import packages
import torch
from compare import CPU, Agrees, Case, Kernel, cases


@cases("rms_norm", token_count=37)
def test_rms_norm(case: Case, agrees: Agrees) -> None:
    def run(inputs, sizes):
        out = torch.empty_like(inputs["x"])
        packages.operations().rms_norm(out, inputs["x"], inputs["weight"], sizes["eps"])
        return out

    agrees(Kernel("vllm", "_C.rms_norm (C++)", CPU), case, run)
