"""FLOPs and compulsory bytes of `linear_sigmoid_mul`. Formulas: arXiv 2607.14541 and its data set."""

from __future__ import annotations

from roofmark.records import Work


def work(*, token_count: int, hidden_size: int, out_features: int, value_features: int | None = None) -> Work:
    """The product, and one operation for each output; all inputs read once, y written, two bytes each."""
    gates, values = token_count * out_features, token_count * (value_features or out_features)
    weights = hidden_size * out_features + out_features
    return Work(
        flops={"bf16": 2 * gates * hidden_size + values},
        bytes_read=2 * (token_count * hidden_size + weights + values),
        bytes_written=2 * values,
    )


work_published = work
