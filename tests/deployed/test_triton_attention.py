"""vLLM's Triton kernels of attention and its cache, interpreted."""

from __future__ import annotations

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
