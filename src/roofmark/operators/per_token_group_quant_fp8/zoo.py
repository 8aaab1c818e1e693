"""Wrong and right answers of `per_token_group_quant_fp8`; see `roofmark.operators.zoo`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch import Tensor

from roofmark.operators.fp8_answers import RIGHT as RIGHT_GROUPS
from roofmark.operators.fp8_answers import WRONG as WRONG_GROUPS
from roofmark.operators.fp8_answers import WRONG_ON_CORNERS as WRONG_GROUPS_ON_CORNERS
from roofmark.operators.fp8_answers import Answer, codes, quotient, right
from roofmark.operators.zoo import Candidate


def _of(answer: Answer) -> Candidate:
    """The answer for every group."""

    def candidate(i: Any, s: dict[str, Any]) -> tuple[Tensor, Tensor]:
        q, scale = answer(i["x"].reshape(-1, s["group_size"]))
        return q.view(i["x"].shape), scale.view(len(i["x"]), -1)

    return candidate


def _under(change: Callable[[Tensor], Tensor]) -> Candidate:
    """Scales changed over the rows, and codes that go with them."""

    def candidate(i: Any, s: dict[str, Any]) -> tuple[Tensor, Tensor]:
        groups = i["x"].reshape(-1, s["group_size"])
        scale = change(right(groups)[1].view(len(i["x"]), -1)).contiguous()
        return codes(quotient(groups, scale.view(-1))).view(i["x"].shape), scale

    return candidate


ROWS = ("x",)
TOLERANCES = ("SCALE", "TIE")
WRONG: dict[str, Candidate] = {
    "one scale for a row": _under(lambda scale: scale.amax(-1, keepdim=True).expand_as(scale)),
    "one scale for all rows": lambda i, s: (
        _under(lambda scale: scale.amax(0, keepdim=True).expand_as(scale))(i, s) if len(i["x"]) > 1 else None
    ),
    "first group's scale": _under(lambda scale: scale[:, :1].expand_as(scale)),
    "next group's scale": _under(lambda scale: scale.roll(-1, -1)),
    "one scale for two groups": _under(lambda scale: scale.view(len(scale), -1, 2).amax(-1).repeat_interleave(2, 1)),
    **{title: _of(answer) for title, answer in WRONG_GROUPS.items()},
}
RIGHT: dict[str, Candidate] = {title: _of(answer) for title, answer in RIGHT_GROUPS.items()}
WRONG_ON_CORNERS: dict[tuple[str, str], Candidate] = {
    place: _of(answer) for place, answer in WRONG_GROUPS_ON_CORNERS.items()
}
