"""vLLM's C++ kernels of linear attention and of experts, as its CPU build has them."""

from __future__ import annotations

import packages
import torch
from compare import CPU, Agrees, Case, Kernel, cases


@cases("gated_delta_rule_update", token_count=9)
def test_gated_delta_rule_update(case: Case, agrees: Agrees) -> None:
    """The kernel is one of decoding: it takes a token of each sequence at a time."""

    def run(inputs, sizes):
        out, state, rows = torch.empty_like(inputs["v"]), inputs["initial_state"], inputs["initial_state_indices"]
        bounds = torch.arange(2, dtype=torch.int32)
        for t in range(sizes["token_count"]):
            q, k, v, a, b = (inputs[name][:, t : t + 1] for name in "qkvab")
            out[:, t : t + 1] = packages.operations().fused_sigmoid_gating_delta_rule_update_cpu(
                inputs["A_log"], inputs["dt_bias"], q, k, v, a[0], b[0], state, rows, bounds, sizes["use_qk_l2norm"],
                sizes["softplus_beta"], sizes["softplus_threshold"],
            )  # fmt: skip
        return out, state

    agrees(Kernel("vllm", "_C.fused_sigmoid_gating_delta_rule_update_cpu (C++)", CPU), case, run)


@cases("causal_conv1d", token_count=67)
def test_causal_conv1d(case: Case, agrees: Agrees) -> None:
    def run(inputs, sizes):
        x = inputs["x"].T.contiguous().T
        bounds, first = torch.tensor([0, sizes["token_count"]], dtype=torch.int32), torch.zeros(1, dtype=torch.int32)
        out = packages.operations().causal_conv1d_fwd_cpu(
            x, inputs["weight"], inputs["bias"], inputs["conv_states"], bounds, first, torch.tensor([True]), True, -1,
            False,
        )  # fmt: skip
        return out, inputs["conv_states"]

    agrees(Kernel("vllm", "_C.causal_conv1d_fwd_cpu (C++)", CPU), case, run)


@cases("fused_moe", token_count=9)
def test_fused_moe(case: Case, agrees: Agrees) -> None:
    def run(inputs, sizes):
        ops, packed = packages.operations(), []
        for name in ("w1", "w2"):
            packed.append(torch.empty_like(inputs[name]))
            ops.prepack_moe_weight(inputs[name], packed[-1], "vec")
        out = torch.empty_like(inputs["hidden"])
        ops.cpu_fused_moe(
            out, inputs["hidden"], *packed, None, None, inputs["topk_weights"], inputs["topk_ids"], False, "silu", "vec"
        )  # fmt: skip
        return out

    agrees(Kernel("vllm", "_C.cpu_fused_moe (C++)", CPU), case, run)
