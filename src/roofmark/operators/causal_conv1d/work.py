"""FLOPs and compulsory bytes of `causal_conv1d`. Formulas: arXiv 2607.14541 and its data set."""

from __future__ import annotations

from roofmark.records import Work


def work(*, token_count: int, dim: int, width: int, activation: str) -> Work:
    """Three operations per tap of an output; x, weights, bias and state read once, out and the new state written."""
    return _work(token_count, dim, width, bytes_of_new_state=2 * dim * (width - 1))


def work_published(*, token_count: int, dim: int, width: int, activation: str) -> Work:
    """As published: the state is read and not written."""
    return _work(token_count, dim, width, bytes_of_new_state=0)


def _work(tokens: int, dim: int, width: int, *, bytes_of_new_state: int) -> Work:
    return Work(
        flops={"bf16": 3 * width * tokens * dim},
        bytes_read=2 * (tokens * dim + dim * width + dim + dim * (width - 1)),
        bytes_written=2 * tokens * dim + bytes_of_new_state,
    )
