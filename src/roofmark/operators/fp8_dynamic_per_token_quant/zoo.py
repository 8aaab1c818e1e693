"""Wrong and right answers of `fp8_dynamic_per_token_quant`; see `roofmark.operators.zoo`."""

from __future__ import annotations

from roofmark.operators.fp8_answers import RIGHT as RIGHT_ROWS
from roofmark.operators.fp8_answers import WRONG as WRONG_ROWS
from roofmark.operators.fp8_answers import WRONG_ON_CORNERS as WRONG_ROWS_ON_CORNERS
from roofmark.operators.fp8_answers import Answer, by
from roofmark.operators.zoo import Candidate


def _of(answer: Answer) -> Candidate:
    return lambda i, s: answer(i["x"])


ROWS = ("x",)
TOLERANCES = ("SCALE", "TIE")
WRONG: dict[str, Candidate] = {
    "one scale for all rows": lambda i, s: by(i["x"], i["x"].abs().amax().float()),
    **{title: _of(answer) for title, answer in WRONG_ROWS.items()},
    # one row may hold no quotient that it moves, but for those in the middle of two codes
    "quotient of 11 bits": lambda i, s: WRONG_ROWS["quotient of 11 bits"](i["x"]) if len(i["x"]) > 1 else None,
}
RIGHT: dict[str, Candidate] = {title: _of(answer) for title, answer in RIGHT_ROWS.items()}
WRONG_ON_CORNERS: dict[tuple[str, str], Candidate] = {
    place: _of(answer) for place, answer in WRONG_ROWS_ON_CORNERS.items()
}
