"""Figures in a few characters."""

from __future__ import annotations

import math
from typing import Any

import pytest

from roofmark.records import Interval
from roofmark.report import words


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, "-"),
        (math.nan, "-"),
        (math.inf, "-"),
        (0.0, "0"),
        (1e-9, "<1e-6"),
        (0.0001086, "0.00011"),
        (0.03067, "0.031"),
        (0.3456, "0.346"),
        (1.0, "1.00"),
        (9.876, "9.88"),
        (68.372, "68.4"),
        (999.4, "999"),
        (123456.7, "123457"),
    ],
)
def test_times(value: float | None, text: str) -> None:
    assert words.us(value) == text


@pytest.mark.parametrize(
    ("value", "text"),
    [(None, "-"), (0.0, "0.000"), (0.0004, "<0.001"), (0.5124, "0.512"), (1.0, "1.000"), (2.5, "2.500")],
)
def test_scores(value: float | None, text: str) -> None:
    assert words.score(value) == text


def test_other_figures() -> None:
    assert [words.percent(v) for v in (None, 0.0, 0.001, 0.5, 0.9999, 1.0)] == [
        "-",
        "0%",
        "0.1%",
        "50%",
        "100.0%",
        "100%",
    ]
    assert [words.attainable(v) for v in (None, 0.5, 1.0, 1.7)] == ["-", "0.500", ">=1", ">=1"]
    assert [words.ratio(v) for v in (None, 0.5, 12.345, 250.4)] == ["-", "0.50x", "12.35x", "250x"]
    assert [words.si(v, "B/s") for v in (4.8e12, 2e10, 9.89e14, 1.979e15, 1500, 999.9e6)] == [
        "4.8 TB/s",
        "20 GB/s",
        "989 TB/s",
        "1.98 PB/s",
        "1.5 kB/s",
        "1 GB/s",
    ]
    assert [words.intensity(v) for v in (2061.2, 206.04, 14.0, 0.75)] == ["2061", "206", "14", "0.75"]
    assert words.scores(Interval(low=0.1, high=0.2)) == "[0.100, 0.200]"
    assert words.scores(Interval(low=0.0001, high=0.0002)) == ""


def test_sizes() -> None:
    first: dict[str, Any] = {"token_count": 4096, "hidden_size": 128, "eps": 1e-6}
    assert words.fixed_dims([first, {**first, "token_count": 2}]) == {"hidden_size": 128, "eps": 1e-6}
    assert words.fixed_dims([first, first]) == {}
    assert words.fixed_dims([first]) == {}
    assert words.dims(first, ["eps"]) == "4096x128"
    assert words.dims({}) == "-"
    runs = {"n": 130, "seq_lens": {"run_length": [[256, 130]]}}
    assert words.dims(runs) == "130x[130*256]"
    mixed = {"run_length": [[1, 4096, 8], [512, 2], [64, 1], [32, 1]]}
    assert words.dims({"seq_lens": mixed}) == "[8*1/4096+2*512+1*64+1 more]"
    assert words.dims({"shape": [1, 1536]}) == "1x1536"
    assert words.dims({"n": 2, "seq_lens": [720]}) == "2x720"
    assert words.dims({"seq_lens": [7, 2]}) == "[7,2]"
    assert words.dims({"seq_lens": list(range(12, 20))}) == "[8: 12..19]"
    assert words.dims({"mixed": [1, "a", None, 2]}) == "[4]"
    assert words.dims({"a": 256, "b": 64, "c": 16, "d": 16, "e": 128}, width=12) == "256x64x16x16\nx128"


def test_a_hostile_message_stays_on_its_line() -> None:
    assert words.safe("a\x1b[31mred\nb\r\tc\u202edne") == "a [31mred b c dne"
    assert words.safe("x" * 999) == "x" * 397 + "..."
    assert words.safe("8 µs – ok", ascii_only=True) == "8 us ? ok"
