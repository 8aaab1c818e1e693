"""Works of operators that move rows and slots differ from the published ones only as docs/errata.md says."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from roofmark import operators
from roofmark.operators import Sizes


def _value_heads(s: Sizes) -> tuple[int, int]:
    heads = 2 * s["num_tokens"] * s["kv_head_num"] * s["size_per_head"]
    return -heads, -heads


def _two_thirds_of_the_tables(s: Sizes) -> tuple[int, int]:
    return -2 * 2 * 4 * s["token_count"] * s["rotary_dim"] // 2, 0


def _caches(s: Sizes) -> tuple[int, int]:
    tokens, heads, head_size = s["shape"]
    cache = 2 * -(-tokens // s["block_size"]) * s["block_size"] * heads * head_size
    return -2 * cache, 2 * 2 * tokens * heads * head_size - 2 * cache


def _whole_buffers(s: Sizes) -> tuple[int, int]:
    used = {1: 1024, 520: 16384, 1019: 16384, 2044: 23808, 3936: 37376, 8192: 73344}[s["token_count"]]
    places = {1: 1024, 520: 20416, 1019: 24408, 2044: 32608, 3936: 47744, 8192: 81792}[s["token_count"]]
    return 0, 4 * (places + -(-places // 128) - used - used // 128)


# bytes read and bytes written, ours less the published
DIFFERENCES: dict[str, Callable[[Sizes], tuple[int, int]]] = {
    "fused_qk_rmsnorm": _value_heads,
    "fused_qkv_rope": lambda s: (0, 0),
    "moe_align_block_size": _whole_buffers,
    "moe_count_and_sort": lambda s: (0, 0),
    "mrope": _two_thirds_of_the_tables,
    "reshape_and_cache": _caches,
}


@pytest.mark.parametrize("name", DIFFERENCES)
def test_works_differ_as_the_errata_say(name: str) -> None:
    operator = operators.load(name)
    for shape in operator.shapes:
        ours, published = operator.work(shape.sizes), operator.work_published(shape.sizes)
        read, written = DIFFERENCES[name](shape.sizes)
        assert (ours.bytes_read - published.bytes_read, ours.bytes_written - published.bytes_written) == (read, written)
        assert sum(ours.flops.values()) == sum(published.flops.values())
        assert set(ours.flops) <= {"bf16", "fp16"}
