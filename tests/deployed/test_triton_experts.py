"""Triton kernels of experts and fp8 in vLLM and SGLang, interpreted."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from types import ModuleType
from typing import Any

import packages
import sources
import torch
from compare import INTERPRETER, Agrees, Case, Kernel, cases
from torch import Tensor

from roofmark import operators
from roofmark.evaluate.lint.cases import model_of

MOE = "vllm.model_executor.layers.fused_moe"
EXPERTS = "sglang.kernels.ops.moe.fused_moe_triton_kernels"

FP8_CHAIN = Kernel("vllm", "fused_moe.fused_moe_kernel (fp8), per_token_group_quant_fp8", INTERPRETER)

Quantise = Callable[[Tensor], tuple[Tensor, Tensor]]


@cache
def fp8_utils() -> ModuleType:
    return sources.module("vllm.model_executor.layers.quantization.utils.fp8_utils")


def grouped(ids: Tensor, experts: int, block: int) -> tuple[Tensor, Tensor, Tensor]:
    """Slots by expert in whole blocks, by the reference of `moe_align_block_size`."""
    operator = operators.load("moe_align_block_size")
    sizes = {"block_size": block, "num_experts": experts}
    made: tuple[Tensor, Tensor, Tensor] = model_of(operator.reference_text(), operator.shapes[0], sizes)(ids)
    return made


def expert_chain(inputs: dict[str, Tensor], sizes: dict[str, Any], quantise: Quantise | None, **config: int) -> Tensor:
    """vLLM's chain for experts: product, gate, product with the weights, sum; inner values in fp8 by `quantise`."""
    import triton.language as tl

    no = {"enable_swap_ab": lambda *_: False, "resolve_moe_use_td": lambda: False}
    kernels = sources.module(f"{MOE}.fused_moe", given={f"{MOE}.utils": no})
    weights, ids = inputs["topk_weights"], inputs["topk_ids"]
    tokens, k = ids.shape
    groups = grouped(ids, sizes["num_experts"], config["BLOCK_SIZE_M"])

    def product(a: Tensor, name: str, scales: Tensor | None, share: Tensor | None, copies: int) -> Tensor:
        out = torch.full((tokens, k, inputs[name].shape[1]), torch.nan, dtype=torch.bfloat16)
        fp8 = scales is not None
        kernels.invoke_fused_moe_triton_kernel(
            a, inputs[name], out, scales, inputs[f"{name}_scales"] if fp8 else None, share, *groups, share is not None,
            copies, dict(config), tl.bfloat16, fp8, False, False, False, False, [128, 128] if fp8 else None,
        )  # fmt: skip
        return out

    both = product(inputs["hidden"], "w1", inputs.get("hidden_scales"), None, k).view(tokens * k, -1)
    gated = both.new_empty(tokens * k, sizes["intermediate_size"])
    packages.operations().silu_and_mul(gated, both)
    inner, scales = (gated, None) if quantise is None else quantise(gated)
    return product(inner, "w2", scales, weights, 1).float().sum(1).bfloat16()


@cases("fused_moe", token_count=5)
def test_fused_moe(case: Case, agrees: Agrees) -> None:
    def run(inputs, sizes):
        blocks = {"BLOCK_SIZE_M": 16, "BLOCK_SIZE_N": 256, "BLOCK_SIZE_K": 512, "GROUP_SIZE_M": 1}
        return expert_chain(inputs, sizes, None, **blocks)

    agrees(Kernel("vllm", "fused_moe.fused_moe_kernel, _C.silu_and_mul", INTERPRETER), case, run)


def fp8_chain(inputs: dict[str, Tensor], sizes: dict[str, Any]) -> Tensor:
    """The chain with inner values in fp8, by vLLM's kernel for groups."""

    def quantise(gated: Tensor) -> tuple[Tensor, Tensor]:
        codes, scales = fp8_utils().per_token_group_quant_fp8(gated, 128, use_ue8m0=False)
        return codes, scales

    blocks = {"BLOCK_SIZE_M": 16, "BLOCK_SIZE_N": 256, "BLOCK_SIZE_K": 128, "GROUP_SIZE_M": 1}
    return expert_chain(inputs, sizes, quantise, **blocks)


@cases("fp8_blockscale_fused_moe", token_count=2, only=lambda sizes: sizes["num_experts"] == 128)
def test_fp8_blockscale_fused_moe(case: Case, agrees: Agrees) -> None:
    agrees(FP8_CHAIN, case, fp8_chain)


@cases("fp8_blockscale_fused_moe", stand_in=True, token_count=3, only=lambda sizes: sizes["hidden_size"] == 896)
def test_fp8_blockscale_fused_moe_stand_in(case: Case, agrees: Agrees) -> None:
    """In place of 256 experts, whose weights alone are 11 GB."""
    agrees(FP8_CHAIN, case, fp8_chain)


@cases("block_scaled_mm", m=37)
def test_block_scaled_mm(case: Case, agrees: Agrees) -> None:
    def run(inputs, sizes):
        block = [sizes["group_n"], sizes["group_k"]]
        return fp8_utils().w8a8_triton_block_scaled_mm(*inputs.values(), block, torch.bfloat16)

    agrees(Kernel("vllm", "fp8_utils.w8a8_triton_block_scaled_mm", INTERPRETER), case, run)


@cases("per_token_group_quant_fp8", token_count=9)
def test_per_token_group_quant_fp8(case: Case, agrees: Agrees) -> None:
    def run(inputs, sizes):
        return fp8_utils().per_token_group_quant_fp8(inputs["x"], sizes["group_size"], use_ue8m0=False)

    agrees(Kernel("vllm", "fp8_utils.per_token_group_quant_fp8", INTERPRETER), case, run)


@cases("moe_sum_reduce", token_count=9)
def test_moe_sum_reduce(case: Case, agrees: Agrees) -> None:
    def run(inputs, sizes):
        x = inputs["x"]
        out = torch.full_like(x[:, 0], torch.nan)
        sources.module(EXPERTS).moe_sum_reduce_triton(x, out, sizes["routed_scaling_factor"])
        return out

    agrees(Kernel("sglang", "fused_moe_triton_kernels.moe_sum_reduce_triton", INTERPRETER), case, run)


@cases("moe_align_block_size", token_count=7)
def test_moe_align_block_size(case: Case, agrees: Agrees) -> None:
    """Its buckets are one more than the experts, the first for what is filtered."""

    def run(inputs, sizes):
        ids, experts, block = inputs["topk_ids"], sizes["num_experts"], sizes["block_size"]
        slots = ids.numel()
        size = min(slots + experts * (block - 1), slots * block)
        places = torch.full((size,), slots, dtype=torch.int32)
        owners, total = torch.zeros(-(-size // block), dtype=torch.int32), torch.zeros(1, dtype=torch.int32)
        kernels = sources.module("sglang.kernels.ops.moe.moe_align_small_numel")
        kernels.moe_align_small_numel(ids.flatten(), experts + 1, block, places, owners, total)
        return places, owners, total

    agrees(Kernel("sglang", "moe.moe_align_small_numel", INTERPRETER), case, run)
