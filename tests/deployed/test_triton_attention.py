"""vLLM's Triton kernels of attention and its cache, interpreted."""

from __future__ import annotations

import math
from functools import cache
from types import ModuleType

import sources
import torch
from compare import INTERPRETER, Agrees, Case, Kernel, cases

OPS = "vllm.v1.attention.ops"
# prompts, chunks of prompts and decodes: query tokens, tokens, how many such
MIXED = {"run_length": [[19, 19, 1], [1, 40, 1], [9, 33, 1], [1, 1, 1]]}


@cache
def unified() -> ModuleType:
    return sources.module(f"{OPS}.triton_unified_attention", f"{OPS}.triton_attention_helpers")


@cache
def decode() -> ModuleType:
    return sources.module(f"{OPS}.triton_decode_attention")


@cases("unified_attention", num_seqs=4, seq_lens=MIXED)
def test_unified_attention(case: Case, agrees: Agrees) -> None:
    def run(inputs, sizes):
        out = torch.full_like(inputs["q"], torch.nan)
        rows, tokens = inputs["cu_seqlens_q"].diff(), inputs["seqused_k"]
        unified().unified_attention(
            inputs["q"], inputs["key_cache"], inputs["value_cache"], out, inputs["cu_seqlens_q"], int(rows.max()),
            tokens, int(tokens.max()), sizes["head_size"] ** -0.5, True, (-1, -1), inputs["block_table"], 0.0, None,
            None, None, kv_quant_mode=0,
        )  # fmt: skip
        return out

    agrees(Kernel("vllm", "triton_unified_attention.unified_attention", INTERPRETER), case, run)


@cases("attention_forward", seq_lens=[40, 1, 33])
def test_attention_forward(case: Case, agrees: Agrees) -> None:
    def run(inputs, sizes):
        kernels = sources.module(
            f"{OPS}.triton_prefill_attention", given={"vllm.utils.math_utils": {"RCP_LN2": 1 / math.log(2)}}
        )
        out, bounds = torch.full_like(inputs["q"], torch.nan), inputs["cu_seqlens"]
        kernels.context_attention_fwd(
            inputs["q"], inputs["k"], inputs["v"], out, bounds[:-1], bounds.diff(), int(bounds.diff().max()), False
        )  # fmt: skip
        return out

    agrees(Kernel("vllm", "triton_prefill_attention.context_attention_fwd", INTERPRETER), case, run)


@cases("mla_decode_attention", batch_size=3, ctx_len=lambda _: [35, 1, 64])
def test_mla_decode_attention(case: Case, agrees: Agrees) -> None:
    """Pages of one token, four splits of each sequence."""

    def run(inputs, sizes):
        q, kv, lens = inputs["q"], inputs["kv_buffer"], inputs["seq_lens"]
        table = (lens.cumsum(0) - lens).view(-1, 1) + torch.arange(int(lens.max()))
        out = q.new_empty(*q.shape[:2], sizes["kv_lora_rank"])
        parts = torch.empty(*q.shape[:2], 4, sizes["kv_lora_rank"] + 1)
        decode().decode_attention_fwd(
            q, kv, kv[..., : sizes["kv_lora_rank"]], out, torch.empty(q.shape[:2]), table.int().clamp(max=len(kv) - 1),
            lens.int(), parts, 4, q.shape[2] ** -0.5, is_mla=True,
        )  # fmt: skip
        return out

    agrees(Kernel("vllm", "triton_decode_attention.decode_attention_fwd", INTERPRETER), case, run)


@cases("paged_attention_decode", only=lambda sizes: sizes["num_kv_heads"] < sizes["num_query_heads"], num_seqs=2,
       ctx_len=35)  # fmt: skip
def test_paged_attention_decode(case: Case, agrees: Agrees) -> None:
    """Where a key head serves several query heads; else vLLM has another kernel, see docs/deployed.md."""

    def run(inputs, sizes):
        q = inputs["query"]
        key = inputs["key_cache"].permute(0, 3, 1, 2, 4).flatten(3).contiguous()
        value = inputs["value_cache"].permute(0, 3, 1, 2).contiguous()
        out, parts = torch.full_like(q, torch.nan), torch.empty(*q.shape[:2], 4, q.shape[2] + 1)
        decode().decode_attention_fwd(
            q, key, value, out, torch.empty(q.shape[:2]), inputs["block_tables"], inputs["context_lens"], parts, 4,
            q.shape[2] ** -0.5, 16,
        )  # fmt: skip
        return out

    agrees(Kernel("vllm", "triton_decode_attention.decode_attention_fwd", INTERPRETER), case, run)


@cases("reshape_and_cache", shape=lambda shape: [21, *shape[1:]])
def test_reshape_and_cache(case: Case, agrees: Agrees) -> None:
    """With the launch that vLLM has for ROCm: the other asks CUDA what device it is."""

    def run(inputs, sizes):
        given = {
            "vllm.platforms": {"current_platform": sources.Platform(rocm=True)},
            "vllm.utils.torch_utils": {"is_quantized_kv_cache": lambda kind: kind != "auto"},
        }
        kernels = sources.module(f"{OPS}.triton_reshape_and_cache_flash", given=given)
        one = torch.ones(())
        kernels.triton_reshape_and_cache_flash(*inputs.values(), "auto", one, one)
        return inputs["key_cache"], inputs["value_cache"]

    agrees(Kernel("vllm", "triton_reshape_and_cache_flash", INTERPRETER), case, run)


@cases("mrope", token_count=11)
def test_mrope(case: Case, agrees: Agrees) -> None:
    def run(inputs, sizes):
        kernels = sources.module("vllm.model_executor.layers.rotary_embedding.mrope")
        names = ("mrope_section", "head_size", "rotary_dim", "mrope_interleaved", "is_neox_style")
        return kernels.triton_mrope(*inputs.values(), *(sizes[name] for name in names))

    agrees(Kernel("vllm", "rotary_embedding.mrope.triton_mrope", INTERPRETER), case, run)
