"""FLOPs and compulsory bytes of `mla_decode_attention`. Formulas: arXiv 2607.14541 and its data set."""

from __future__ import annotations

from roofmark.operators.spans import Contexts, contexts
from roofmark.records import Work


def work(*, batch_size: int, ctx_len: Contexts, nhead: int, kv_lora_rank: int, qk_rope_head_dim: int) -> Work:
    """Two products per head: with the whole latent, and with its value part. Queries, latents and lengths read once."""
    tokens = sum(contexts(batch_size, ctx_len))
    key = kv_lora_rank + qk_rope_head_dim
    return Work(
        flops={"bf16": 2 * nhead * tokens * (key + kv_lora_rank)},
        bytes_read=2 * batch_size * nhead * key + 2 * tokens * key + 4 * batch_size,
        bytes_written=2 * batch_size * nhead * kv_lora_rank,
    )


def work_published(*, batch_size: int, ctx_len: int, nhead: int, kv_lora_rank: int, qk_rope_head_dim: int) -> Work:
    """As published: one more operation for every element of a query, and of a latent met by a head."""
    right = work(
        batch_size=batch_size,
        ctx_len=ctx_len,
        nhead=nhead,
        kv_lora_rank=kv_lora_rank,
        qk_rope_head_dim=qk_rope_head_dim,
    )
    more = batch_size * nhead * (ctx_len + 1) * (kv_lora_rank + qk_rope_head_dim)
    return right.model_copy(update={"flops": {"bf16": right.flops["bf16"] + more}})
