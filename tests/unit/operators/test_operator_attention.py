"""Attention over a cache against sums written out row by row, and what its works count."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import pairwise
from typing import Any

import torch
from operator_check import SEED
from torch import Tensor, nn

from roofmark import operators
from roofmark.evaluate.correctness import check_outputs
from roofmark.operators import Operator

# rows and tokens: a decode, a chunk, a prompt, none, a decode of one token, a chunk that ends a block, a decode
SPANS = [(1, 37), (7, 39), (19, 19), (0, 0), (1, 1), (15, 48), (1, 16)]
MIXED = {
    "num_seqs": len(SPANS),
    "seq_lens": {"run_length": [[*span, 1] for span in SPANS]},
    "num_query_heads": 6,
    "num_kv_heads": 2,
    "head_size": 64,
    "block_size": 16,
}


def _model(operator: Operator, **init: Any) -> nn.Module:
    """The reference from its source."""
    namespace: dict[str, Any] = {"__name__": "reference"}
    exec(operator.reference_text(), namespace)
    made: nn.Module = namespace["Model"](**init)
    return made


def _row(inputs: Mapping[str, Tensor], sequence: int, own: int, q: Tensor) -> Tensor:
    """One row's answer from its own token's place in its sequence, each token and head looked up by itself."""
    table, heads = inputs["block_table"][sequence].tolist(), []
    for head, query in enumerate(q.double()):
        place = [(table[token // 16], token % 16, head // 3) for token in range(own + 1)]
        k, v = (torch.stack([inputs[name][at] for at in place]).double() for name in ("key_cache", "value_cache"))
        weights = ((k * query).sum(1) / 8.0).softmax(0)
        heads.append((weights.unsqueeze(1) * v).sum(0))
    return torch.stack(heads)


def test_unified_attention_of_decodes_beside_chunks_is_the_sum_over_each_rows_own_tokens() -> None:
    operator = operators.load("unified_attention")
    inputs = operator.make_inputs(MIXED, seed=SEED, device="cpu")
    rows = [(s, own) for s, (rows, tokens) in enumerate(SPANS) for own in range(tokens - rows, tokens)]
    direct = torch.stack([_row(inputs, s, own, q) for (s, own), q in zip(rows, inputs["q"], strict=True)])
    said = operator.expected_rows(inputs, MIXED, torch.arange(len(rows)))["out"]
    torch.testing.assert_close(said.value, direct, rtol=1e-11, atol=1e-11)
    for made in (direct.to(torch.bfloat16), _model(operator)(**inputs)):
        assert check_outputs(operator, inputs, MIXED, {"out": made}, None).finding is None


def test_unified_attention_of_a_sequence_does_not_depend_on_the_others() -> None:
    operator = operators.load("unified_attention")
    inputs = operator.make_inputs(MIXED, seed=SEED, device="cpu")
    model = _model(operator)
    whole, bounds = model(**inputs), inputs["cu_seqlens_q"].tolist()
    for s, (start, end) in enumerate(pairwise(bounds)):
        alone = {
            **inputs,
            "q": inputs["q"][start:end],
            "cu_seqlens_q": torch.tensor([0, end - start], dtype=torch.int32),
            "seqused_k": inputs["seqused_k"][s : s + 1],
            "block_table": inputs["block_table"][s : s + 1],
        }
        torch.testing.assert_close(model(**alone), whole[start:end], rtol=2**-7, atol=1e-5)


def test_unified_attention_counts_pairs_of_a_row_and_a_token_that_it_sees() -> None:
    operator = operators.load("unified_attention")
    pairs = sum(own + 1 for rows, tokens in SPANS for own in range(tokens - rows, tokens))
    work = operator.work(MIXED)
    assert work.flops == {"bf16": 2 * 2 * pairs * 6 * 64}
    rows, tokens, blocks = 44, 160, 3 + 3 + 2 + 0 + 1 + 3 + 1
    assert work.bytes_written == 2 * rows * 6 * 64
    assert work.bytes_read == work.bytes_written + 2 * 2 * tokens * 2 * 64 + 4 * blocks + 4 * 8 + 4 * 7


def test_mla_decode_attention_counts_two_products_alone() -> None:
    operator = operators.load("mla_decode_attention")
    for shape in operator.shapes:
        s, ours, published = shape.sizes, operator.work(shape.sizes), operator.work_published(shape.sizes)
        more = s["batch_size"] * s["nhead"] * (s["ctx_len"] + 1) * 576
        assert published.flops["bf16"] - ours.flops["bf16"] == more
        assert (ours.bytes_read, ours.bytes_written) == (published.bytes_read, published.bytes_written)
