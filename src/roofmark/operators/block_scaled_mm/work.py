"""FLOPs and compulsory bytes of `block_scaled_mm`. Formulas: arXiv 2607.14541 and its data set."""

from __future__ import annotations

from roofmark.records import Work


def work(*, m: int, n: int, k: int, group_n: int, group_k: int) -> Work:
    """Products, and three operations per block to scale and add; all inputs read once, bf16 written."""
    return _work(m, n, k, group_n, group_k, bytes_per_output=2)


def work_published(*, m: int, n: int, k: int, group_n: int, group_k: int) -> Work:
    """As published: a float32 output."""
    return _work(m, n, k, group_n, group_k, bytes_per_output=4)


def _work(m: int, n: int, k: int, group_n: int, group_k: int, *, bytes_per_output: int) -> Work:
    blocks = k // group_k
    return Work(
        flops={"fp8_e4m3": 2 * m * n * k + m * n * (3 * blocks - 1)},
        bytes_read=m * k + n * k + 4 * m * blocks + 4 * (n // group_n) * blocks,
        bytes_written=bytes_per_output * m * n,
    )
