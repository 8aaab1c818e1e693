"""The tables at the widths that people have: whole figures, no long lines, words without colour."""

from __future__ import annotations

import io
import re
import sys
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from roofmark.records import Roofline, RunScore, ShapeScore
from roofmark.report import run_report, summary_lines

sys.path.insert(0, str(Path(__file__).parents[2] / "golden"))
from golden_runs import HERE, RUNS

WIDTHS = (80, 100, 116, 120, 160)


def golden(name: str) -> RunScore:
    return RunScore.model_validate_json((HERE / name / "score.json").read_text(encoding="utf-8"))


def shown(score: RunScore, width: int, encoding: str = "utf-8", **fields: Any) -> str:
    raw = io.BytesIO()
    with io.TextIOWrapper(raw, encoding=encoding, errors="strict", write_through=True) as file:
        Console(file=file, width=width, **fields).print(run_report(score))
        return raw.getvalue().decode(encoding)


def worst(shape: ShapeScore) -> ShapeScore:
    """The shape with the longest figures that one may have."""
    long = {
        "shape_id": "55",
        "status": "wrong_shape_or_dtype" if shape.s is None else shape.status,
        "dims": {f"d{n}": int(shape.shape_id) + 12345 for n in range(6)},
        "t_sol_us": 123456.7 if shape.s else 0.000123,
        "time_us": 123456.7,
        "interval_us": {"low": 123451.2, "high": 123459.3},
        "eager_s": 0.0001,
        "adoption": 0.9999,
        "message": "\x1b[2J off by 40 times the tolerance\n" * 9,
    }
    return ShapeScore.model_validate({**shape.model_dump(), **long})


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("name", RUNS)
def test_no_line_is_too_long_and_nothing_is_cut(name: str, width: int) -> None:
    text = shown(golden(name), width)
    assert max(map(len, text.splitlines())) <= width
    assert "…" not in text
    for shape in golden(name).shapes:
        if shape.s:
            assert f"{shape.s:.3f}" in text
        assert shape.status in text


@pytest.mark.parametrize("width", WIDTHS)
def test_the_longest_figures_are_whole(width: int) -> None:
    score = golden("complete")
    long = score.model_copy(update={"shapes": tuple(worst(shape) for shape in score.shapes)})
    text = shown(long, width)
    assert max(map(len, text.splitlines())) <= width
    assert "…" not in text
    assert len(re.findall(r"\[123451, ?123459\]", text)) == len(score.shapes)
    assert len(re.findall(r"123457\b", text)) >= len(score.shapes)
    assert text.count("100.0%") == len(score.shapes)
    assert "\x1b" not in text


def test_an_ascii_terminal_gets_ascii() -> None:
    for name in RUNS:
        for width in (80, 120):
            shown(golden(name), width, "ascii").encode("ascii")
    assert "T us" in shown(golden("complete"), 120, "ascii")


def test_without_colour_the_words_say_it_all() -> None:
    plain = shown(golden("complete"), 120)
    coloured = shown(golden("complete"), 120, force_terminal=True, color_system="standard")
    assert "\x1b[" in coloured
    assert re.sub(r"\x1b\[[0-9;]*m", "", coloured) == plain


def test_a_failed_shape_says_why() -> None:
    text = shown(golden("complete"), 120)
    assert "wrong_values (correctness gate): 3 of 409600 values off, the worst 12x the tolerance" in text
    assert "crash (compile gate): signal 6" in text
    assert "fallback" in text


def test_the_summary_says_what_the_run_is() -> None:
    lines = dict(summary_lines(golden("complete")))
    assert lines["score"] == "S_agg 0.244 [0.195, 0.305], S_strict 0.156"
    assert lines["held against"] == "G1: 1 TB/s, bf16 1 PFLOP/s (ridge 1000 FLOP/byte); vendor's constants"
    assert lines["rates"].startswith(
        "compiled 79% (76% without fallbacks), correct 45%, adoption 62% (2 of 3 operators)"
    )
    assert lines["isolation"] == "bubblewrap; ranked"
    partial = dict(summary_lines(golden("partial_cpu")))
    assert partial["score"] == (
        "S 0.625, S_strict 0.312, eager S 0.500 over 38% of the release's weight; no S_agg: the run is partial"
    )
    assert partial["held against"].endswith("; largest of 2 calibrations")
    incomplete = summary_lines(golden("incomplete"))
    assert sum(label == "incomplete" for label, _ in incomplete) == 6
    assert "no S_agg: the run is incomplete" in dict(incomplete)["score"]


def test_an_eager_s_over_fewer_shapes_says_so() -> None:
    score = golden("complete")
    for width in WIDTHS:
        assert "3/4" not in shown(score, width)
    alpha, beta, gamma = score.operators
    fewer = score.model_copy(
        update={"operators": (alpha.model_copy(update={"eager_shapes": 3}), beta, gamma), "eager_s_agg": 0.2}
    )
    for width in WIDTHS:
        assert "3/4" in shown(fewer, width)
    assert dict(summary_lines(fewer))["beside it"] == "eager S_agg 0.200 (on 6 of its 9 shapes)"


def test_the_deployed_kernels_stand_beside_the_score() -> None:
    lines = dict(summary_lines(golden("deployed")))
    assert lines["rates"].endswith("over eager n/a, over the deployed 1.06x")
    assert lines["beside it"] == "deployed S_agg 0.475 (on 4 of 5 shapes)"
    both = golden("deployed").model_copy(update={"eager_s_agg": 0.2, "speedup_over_baseline_operators": 1})
    assert dict(summary_lines(both))["beside it"].endswith(", deployed S_agg 0.475 (on 4 of 5 shapes)")
    assert dict(summary_lines(both))["rates"].endswith("over the deployed 1.06x (1 of 2 operators)")
    for name in ("complete", "incomplete", "partial_cpu"):
        lines = dict(summary_lines(golden(name)))
        assert lines["rates"].endswith(", over the deployed n/a")
        assert "deployed" not in lines.get("beside it", "")


def test_a_run_that_holds_nothing_yet() -> None:
    empty = golden("incomplete").model_copy(
        update={
            "roofline": None,
            "roofline_source": "not calibrated",
            "s_covered": None,
            "weight_covered": 0.0,
        }
    )
    assert dict(summary_lines(empty))["score"].startswith("no S over 0% of the release's weight")
    assert dict(summary_lines(empty))["held against"] == "nothing: not calibrated"
    many = empty.model_copy(update={"incomplete": tuple(map(str, range(40)))})
    assert ("incomplete", "and 28 more") in summary_lines(many)


def test_every_dtype_in_use_is_held_against_its_peak() -> None:
    roofline = Roofline(device="X", peak_flops={"bf16": 1e15, "fp8": 2e15}, bandwidth_bytes_per_s=4e12)
    score = golden("complete").model_copy(update={"roofline": roofline, "dtypes": ("bf16", "fp8_e4m3")})
    assert "fp8_e4m3 2 PFLOP/s (ridge 500 FLOP/byte)" in dict(summary_lines(score))["held against"]
