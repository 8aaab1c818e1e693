"""Inputs of `unified_attention`: each row's softmax rests on some 4 to 64 of the tokens that it sees, anywhere."""

from __future__ import annotations

import math
from itertools import accumulate
from typing import Any

import torch
from torch import Tensor

from roofmark.operators.draw import Draw
from roofmark.operators.spans import Lengths, spans
from roofmark.records import OutputSpec

# Blocks of the caches that no sequence owns; block 0, which the deployed allocator keeps back, is one.
SPARE_BLOCKS = 16
# What an element that no token owns is multiplied by: finite, far larger than any token's.
GARBAGE = 4096.0
# Of 256 rows of a query head, this many are zero, and as many are this much larger.
ODD, SHARP = 8, 32.0
# What the first token and a row's own weigh, of all that the row sees; the mean square of a key's element.
SHARE, KEY_SQUARED = 0.05, 4 / 3
# Too large for fp16.
LARGE = 2.0**15

# (query tokens, tokens) of each sequence.
CORNER_SPANS: dict[str, list[tuple[int, int]]] = {
    "one_token": [(1, 1)],
    "ones": [(1, 1)] * 5,
    "decode": [(1, 64), (1, 1), (1, 17), (1, 33), (1, 40)],
    "long_decode": [(1, 1037)],
    "chunks": [(17, 48), (2, 33), (33, 50)],
    "long_chunk": [(21, 700)],
    "mixed": [(1, 129), (16, 16), (7, 39), (1, 1), (31, 31), (1, 18), (30, 77)],
    "ragged": [(3, 3), (1, 1), (65, 65), (30, 30)],
    "blocks": [(16, 16), (15, 15), (17, 17), (1, 16), (1, 17), (32, 32)],
    "empty": [(0, 0), (5, 5), (0, 0), (0, 0), (33, 40), (1, 9), (0, 0)],
    "tail": [(131, 131)],
    "shared_blocks": [(20, 60), (1, 53), (37, 37)],
    "equal_keys": [(67, 67), (1, 45)],
    "sharp": [(70, 70), (1, 51), (9, 40)],
    "zeros": [(9, 9), (1, 23)],
    "large": [(40, 40), (1, 35)],
}


def outputs(*, seq_lens: Lengths, num_query_heads: int, head_size: int, **_: Any) -> tuple[OutputSpec, ...]:
    rows = sum(span[0] for span in spans(seq_lens))
    return (OutputSpec(name="out", shape=(rows, num_query_heads, head_size), dtype="bfloat16"),)


def make_inputs(
    *,
    num_seqs: int,
    seq_lens: Lengths,
    num_query_heads: int,
    num_kv_heads: int,
    head_size: int,
    block_size: int,
    seed: int,
    device: str,
) -> dict[str, Tensor]:
    """`q`, the two caches, `cu_seqlens_q`, `seqused_k` and `block_table` of `num_seqs` sequences.

    Logits have a standard deviation that grows with the tokens that a row sees: over 49,152 keys that all count
    alike the output would be near the mean of the values in every row. The first token and the row's own count in
    every row. Some rows of some heads are zero: there all tokens count alike; some are so large that exp overflows
    unless the maximum is taken off first. `value_cache` has a mean of its own for every token and head.
    """
    draw = Draw(seed, device)
    every = spans(seq_lens)
    bounds = torch.tensor([0, *accumulate(rows for rows, _ in every)], device=device)
    tokens = torch.tensor([count for _, count in every], device=device)
    table = _table(draw, tokens, block_size)
    shape = (_pool(tokens, block_size), block_size, num_kv_heads, head_size)
    key = draw.uniform("key", shape, torch.bfloat16, 2.0)
    value = draw.uniform("value", shape, torch.bfloat16)
    value.add_(draw.between("mean", (*shape[:3], 1), -1.0, 3.0).to(torch.bfloat16))
    q = draw.uniform("q", (sum(rows for rows, _ in every), num_query_heads, head_size), torch.bfloat16, 1.5)
    _aim(draw, q, key, (bounds, tokens, table))
    factor = torch.where(_owned(table, tokens, shape[0], block_size), 1.0, GARBAGE).to(torch.bfloat16)[..., None, None]
    return {
        "q": q,
        "key_cache": key.mul_(factor),
        "value_cache": value.mul_(factor),
        "cu_seqlens_q": bounds.to(torch.int32),
        "seqused_k": tokens.to(torch.int32),
        "block_table": table.to(torch.int32),
    }


def _pool(tokens: Tensor, block_size: int) -> int:
    """How many blocks the caches have."""
    return int((-(-tokens // block_size)).sum()) + SPARE_BLOCKS


def _table(draw: Draw, tokens: Tensor, block_size: int) -> Tensor:
    """Blocks in random order, never block 0; behind a sequence's last block, spare ones. [n, width] int64."""
    blocks = -(-tokens // block_size)
    order = draw.permutation("blocks", _pool(tokens, block_size) - 1) + 1
    used = len(order) + 1 - SPARE_BLOCKS
    place = torch.arange(int(blocks.max()), device=tokens.device)
    table = order[used:][place % (SPARE_BLOCKS - 1)].repeat(len(tokens), 1)
    table[place < blocks.unsqueeze(1)] = order[:used]
    return table


def _owned(table: Tensor, tokens: Tensor, pool: int, block_size: int) -> Tensor:
    """Which slots of which blocks hold a token: [pool, block_size] bool."""
    owned = torch.zeros(pool, block_size, dtype=torch.bool, device=table.device)
    place = torch.arange(table.shape[1] * block_size, device=table.device).view(1, -1, block_size)
    live = place < tokens.view(-1, 1, 1)
    sequence, block = live.any(-1).nonzero(as_tuple=True)
    owned[table[sequence, block]] = live[sequence, block]
    return owned


def _aim(draw: Draw, q: Tensor, key: Tensor, batch: tuple[Tensor, Tensor, Tensor]) -> None:
    """Gives the logits of q their standard deviation, and the first and the own token of a row their share, in place.

    `batch` is the bounds of the sequences' rows, their tokens and their blocks.
    """
    bounds, tokens, table = batch
    rows, (_, block_size, num_kv_heads, head_size) = len(q), key.shape
    sequence = torch.arange(len(tokens), device=q.device).repeat_interleave(bounds.diff())
    own = torch.arange(rows, device=q.device) - (bounds[1:] - tokens)[sequence]
    variance = 1.4 * ((own + 1) / 16).clamp(min=1.5).log()
    # the logit of a token that takes SHARE of all that a row sees, before the logits get their deviation
    logit = ((own + 1).log() + variance / 2 + math.log(SHARE)) / variance.sqrt()
    heads = q.view(rows, num_kv_heads, -1, head_size)
    for token in (own, own * 0):
        near = key[table[sequence, token // block_size], token % block_size].unsqueeze(2)
        missing = logit.view(-1, 1, 1, 1) * math.sqrt(head_size) - (heads * near).sum(-1, keepdim=True)
        heads.addcmul_(missing.div_(head_size * KEY_SQUARED).to(q.dtype), near)
    kind = draw.bits("odd", (rows, q.shape[1]), torch.uint8)
    factor = (kind >= ODD).to(q.dtype).masked_fill_(kind >= 256 - ODD, SHARP)
    q.mul_(factor.mul_(variance.sqrt().to(q.dtype).unsqueeze(1)).unsqueeze(-1))


def corners(**sizes: Any) -> dict[str, dict[str, Any]]:
    """The corner cases, each with its own few short sequences."""
    return {
        name: {**sizes, "num_seqs": len(every), "seq_lens": {"run_length": [[*span, 1] for span in every]}}
        for name, every in CORNER_SPANS.items()
    }


def make_corner(name: str, *, seed: int, device: str, **sizes: Any) -> dict[str, Tensor]:
    made = make_inputs(seed=seed, device=device, **sizes)
    table, tokens, key, value = made["block_table"], made["seqused_k"], made["key_cache"], made["value_cache"]
    owned = _owned(table.long(), tokens.long(), *key.shape[:2])
    if name == "equal_keys":  # every key counts alike: the mean of the values seen
        key[owned] = key[owned][:1].clone()
    elif name == "sharp":  # logits far outside what exp can hold without the maximum taken off
        made["q"].clamp_(-4.0, 4.0).mul_(SHARP)
    elif name == "zeros":
        made["q"].zero_()
        key[owned] = 0.0
        value[:, ::2] *= ~owned[:, ::2, None, None]
    elif name == "large":  # finite in bfloat16 alone
        value[owned] = value[owned].abs() * LARGE
    elif name == "shared_blocks":  # a prefix of two blocks that all sequences have in common
        table[1:, :2] = table[0, :2].clone()
    return made
