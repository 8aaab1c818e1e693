"""vLLM's C++ attention over a paged cache, as its CPU build has it."""

from __future__ import annotations

from collections.abc import Mapping

import packages
import torch
from compare import CPU, Agrees, Case, Kernel, cases
from torch import Tensor

PAGED = Kernel("vllm", "_C.cpu_attention_with_kv_cache (C++)", CPU)
# vLLM takes it for blocks of 16 slots; its other one needs blocks of 32
ISA = "vec16"
# prompts, chunks of prompts and decodes: query tokens, tokens, how many such
MIXED = {"run_length": [[33, 33, 1], [1, 70, 1], [17, 48, 1], [1, 1, 1], [16, 16, 2]]}


def attend(q: Tensor, key: Tensor, value: Tensor, bounds: Tensor, lens: Tensor, table: Tensor) -> Tensor:
    """The kernel's answer on caches [blocks, slots, heads, d], which its own operation lays out as it likes."""
    ops, d = packages.operations(), q.shape[-1]
    blocks, slots, heads = key.shape[:3]
    own = [torch.zeros(blocks, heads, slots, d, dtype=q.dtype) for _ in range(2)]
    rows = [cache.flatten(0, 1).contiguous() for cache in (key, value)]
    ops.cpu_attn_reshape_and_cache(*rows, *own, torch.arange(blocks * slots), ISA)
    plan = ops.get_scheduler_metadata(
        len(lens), q.shape[1], heads, d, lens, q.dtype, bounds, True, -1, ISA, True, None
    )  # fmt: skip
    out = torch.full_like(q, torch.nan)
    ops.cpu_attention_with_kv_cache(
        q, *own, out, bounds, lens, d**-0.5, True, None, -1, table, 0.0, plan, None, None
    )  # fmt: skip
    return out


@cases("unified_attention", only=lambda sizes: sizes["head_size"] != 72, num_seqs=6, seq_lens=MIXED)
def test_unified_attention(case: Case, agrees: Agrees) -> None:
    def run(inputs, sizes):
        return attend(*inputs.values())

    agrees(PAGED, case, run)


@cases("paged_attention_decode", num_seqs=5, ctx_len=64)
def test_paged_attention_decode(case: Case, agrees: Agrees) -> None:
    def run(inputs: Mapping[str, Tensor], sizes):
        key = inputs["key_cache"].permute(0, 3, 1, 2, 4).flatten(3)
        value = inputs["value_cache"].permute(0, 3, 1, 2)
        bounds = torch.arange(sizes["num_seqs"] + 1, dtype=torch.int32)
        return attend(inputs["query"], key, value, bounds, inputs["context_lens"], inputs["block_tables"])

    agrees(PAGED, case, run)


@cases("mla_decode_attention", batch_size=4, ctx_len=lambda _: [64, 1, 17, 133])
def test_mla_decode_attention(case: Case, agrees: Agrees) -> None:
    def run(inputs, sizes):
        q, lens = inputs["q"], inputs["seq_lens"]
        blocks = -(-lens // 16)
        table = torch.zeros(len(lens), int(blocks.max()), dtype=torch.int32)
        cache = torch.full((int(blocks.sum()), 16, q.shape[2]), 1e4, dtype=q.dtype)
        start = row = 0
        for i, (length, count) in enumerate(zip(lens.tolist(), blocks.tolist(), strict=True)):
            table[i, :count] = torch.arange(start, start + count)
            cache[start : start + count].flatten(0, 1)[:length] = inputs["kv_buffer"][row : row + length, 0]
            start, row = start + count, row + length
        out = q.new_empty(*q.shape[:2], sizes["kv_lora_rank"])
        packages.operations().mla_decode_kvcache(out, q, cache, q.shape[2] ** -0.5, table, lens.int())
        return out

    agrees(Kernel("vllm", "_C.mla_decode_kvcache (C++)", CPU), case, run)
