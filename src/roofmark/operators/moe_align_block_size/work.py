"""FLOPs and compulsory bytes of `moe_align_block_size`. Formulas: arXiv 2607.14541 and its data set."""

from __future__ import annotations

from roofmark.records import Work

# Slots after padding, by token count, of the one unseeded draw behind the published figures. At all other published
# counts every chosen expert needs one block.
PUBLISHED_PLACES = {2044: 23808, 3936: 37376, 8192: 73344}


def work(*, token_count: int, top_k: int, num_experts: int, block_size: int) -> Work:
    """Every expert number read, both buffers and the count written, four bytes each; no arithmetic that counts."""
    slots = token_count * top_k
    places = slots + num_experts * (block_size - 1)
    if slots < num_experts:
        places = min(places, slots * block_size)
    return Work(flops={}, bytes_read=4 * slots, bytes_written=4 * (places + -(-places // block_size) + 1))


def work_published(*, token_count: int, top_k: int, num_experts: int, block_size: int) -> Work:
    """As published: the places and blocks that one draw of the experts needed."""
    slots = token_count * top_k
    places = PUBLISHED_PLACES.get(token_count, min(slots, num_experts) * block_size)
    return Work(flops={}, bytes_read=4 * slots, bytes_written=4 * (places + places // block_size + 1))
