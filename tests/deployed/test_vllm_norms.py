"""vLLM's C++ norms, activation and quantisation, as its CPU build has them."""

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


@cases("fused_add_rms_norm", token_count=37)
def test_fused_add_rms_norm(case: Case, agrees: Agrees) -> None:
    def run(inputs, sizes):
        packages.operations().fused_add_rms_norm(inputs["x"], inputs["residual"], inputs["weight"], sizes["eps"])
        return inputs["x"], inputs["residual"]

    agrees(Kernel("vllm", "_C.fused_add_rms_norm (C++)", CPU), case, run)


@cases("silu_and_mul", shape=lambda shape: [37, shape[1]])
def test_silu_and_mul(case: Case, agrees: Agrees) -> None:
    def run(inputs, sizes):
        x = inputs["x"]
        out = x.new_empty(len(x), x.shape[1] // 2)
        packages.operations().silu_and_mul(out, x)
        return out

    agrees(Kernel("vllm", "_C.silu_and_mul (C++)", CPU), case, run)


@cases("fused_qk_rmsnorm", num_tokens=13)
def test_fused_qk_rmsnorm(case: Case, agrees: Agrees) -> None:
    """The norm of each head by the kernel for rows, as vLLM's models do it; the values stay."""

    def run(inputs, sizes):
        qkv, width = inputs["qkv"], sizes["size_per_head"]
        q, k, _ = torch.split(qkv, [sizes["head_num"] * width, *[sizes["kv_head_num"] * width] * 2], dim=-1)
        for part, weight in ((q, inputs["q_weight"]), (k, inputs["k_weight"])):
            rows = part.reshape(-1, width)
            out = torch.empty_like(rows)
            packages.operations().rms_norm(out, rows, weight, 1e-6)
            part.copy_(out.view(part.shape))
        return qkv

    agrees(Kernel("vllm", "_C.rms_norm (C++)", CPU), case, run)


@cases("fp8_dynamic_per_token_quant", token_count=37)
def test_fp8_dynamic_per_token_quant(case: Case, agrees: Agrees) -> None:
    def run(inputs, sizes):
        return packages.operations().quantize_fp8e4m3_vec(inputs["x"], True, None)

    agrees(Kernel("vllm", "_C.quantize_fp8e4m3_vec (C++)", CPU), case, run)


@cases("fused_rmsnorm_quant", token_count=37)
def test_fused_rmsnorm_quant(case: Case, agrees: Agrees) -> None:
    """A chain of three kernels, which rounds in between."""

    def run(inputs, sizes):
        ops, total = packages.operations(), inputs["x"] + inputs["residual"]
        y = torch.empty_like(total)
        ops.rms_norm(y, total, inputs["weight"], sizes.get("eps", 1e-6))
        return *ops.quantize_fp8e4m3_vec(y, True, None), total

    agrees(Kernel("vllm", "add, _C.rms_norm, _C.quantize_fp8e4m3_vec (C++)", CPU), case, run)
