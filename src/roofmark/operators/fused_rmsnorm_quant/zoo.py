"""Wrong and right answers of `fused_rmsnorm_quant`; see `roofmark.operators.zoo`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from roofmark.operators.fp8_answers import RIGHT as RIGHT_ROWS
from roofmark.operators.fp8_answers import WRONG as WRONG_ROWS
from roofmark.operators.fp8_answers import Answer, bits, changed, codes, right
from roofmark.operators.zoo import Candidate

BF16 = torch.bfloat16
EPS = 1e-6
Inputs = Mapping[str, Tensor]
Outputs = tuple[Tensor, Tensor, Tensor]


def _added(i: Inputs) -> Tensor:
    return i["x"].float() + i["residual"].float()


def _mean_square(r: Tensor) -> Tensor:
    return r.square().mean(-1, keepdim=True)


def _normed(r: Tensor, i: Inputs, mean_square: Tensor | None = None, eps: float = EPS) -> Tensor:
    return r * torch.rsqrt((_mean_square(r) if mean_square is None else mean_square) + eps) * i["weight"].float()


def _with(i: Inputs, y: Tensor, residual: Tensor | None = None, answer: Answer = right) -> Outputs:
    """Codes and scales of `y`, beside the new residual."""
    return (*answer(y), _added(i).to(BF16) if residual is None else residual)


def _root(i: Inputs, mean_square: Tensor, eps: float = EPS) -> Outputs:
    """The answer with another mean square."""
    return _with(i, _normed(_added(i).to(BF16).float(), i, mean_square, eps))


def _of(answer: Answer) -> Candidate:
    """Codes and scales made from the right y in another way."""
    return lambda i, s: _with(i, _normed(_added(i).to(BF16).float(), i), answer=answer)


def _part(i: Inputs, s: dict[str, Any], share: float) -> Outputs:
    """The mean square over the first columns alone."""
    r = _added(i)[:, : int(s["hidden_size"] * share)]
    return _root(i, _mean_square(r))


def _layer_norm(i: Inputs, s: dict[str, Any]) -> Outputs:
    r = _added(i)
    return _with(i, _normed(r - r.mean(-1, keepdim=True), i))


def _root_of_8_bits(i: Inputs, s: dict[str, Any]) -> Outputs:
    r = _added(i)
    return _with(i, r * bits(torch.rsqrt(_mean_square(r) + EPS), 8) * i["weight"].float())


def _squares_in_bf16(i: Inputs, s: dict[str, Any]) -> Outputs:
    return _root(i, _added(i).to(BF16).square().float().mean(-1, keepdim=True).to(BF16).float())


ROWS = ("x", "residual")
TOLERANCES = ("SCALE", "FLOAT32")
WRONG: dict[str, Candidate] = {
    "residual not added": lambda i, s: _with(i, _normed(i["x"].float(), i)),
    "x not added": lambda i, s: _with(i, _normed(i["residual"].float(), i)),
    "residual subtracted": lambda i, s: _with(i, _normed(i["x"].float() - i["residual"].float(), i)),
    "residual handed back": lambda i, s: _with(i, _normed(_added(i), i), i["residual"]),
    "x for the residual": lambda i, s: _with(i, _normed(_added(i), i), i["x"]),
    "normed residual": lambda i, s: _with(i, _normed(_added(i), i), _normed(_added(i), i).to(BF16)),
    "residual of 7 bits": lambda i, s: _with(i, _normed(_added(i), i), bits(_added(i), 7).to(BF16)),
    "no weight": lambda i, s: _with(i, _normed(_added(i), {**i, "weight": torch.ones(s["hidden_size"])})),
    "weight + 1": lambda i, s: _with(i, _normed(_added(i), {**i, "weight": i["weight"].float() + 1})),
    "scale without the weight": lambda i, s: _with(
        i, _normed(_added(i), i), answer=lambda y: (right(y)[0], right(y / i["weight"].float())[1])
    ),
    "no root": lambda i, s: _root(i, torch.ones(1), 0.0),
    "no eps": lambda i, s: _root(i, _mean_square(_added(i)) + 1e-30, 0.0),
    "eps outside the root": lambda i, s: _root(i, (_mean_square(_added(i)).sqrt() + EPS).square(), 0.0),
    "eps of 1e-5": lambda i, s: _root(i, _mean_square(_added(i)), 1e-5),
    "mean over all rows": lambda i, s: _root(i, _mean_square(_added(i)).mean()),
    "sum for mean": lambda i, s: _root(i, _mean_square(_added(i)) * s["hidden_size"]),
    "mean of sizes": lambda i, s: _root(i, _added(i).abs().mean(-1, keepdim=True).square()),
    "mean square of half a row": lambda i, s: _part(i, s, 1 / 2),
    "mean square without the last sixteenth": lambda i, s: _part(i, s, 15 / 16),
    "layer norm": _layer_norm,
    "root of 8 bits": _root_of_8_bits,
    "squares in bf16": _squares_in_bf16,
    "sum in fp8": lambda i, s: _with(i, _normed(codes(_added(i) * 8).float() / 8, i)),
    "quotient of 13 bits": _of(changed(lambda q: bits(q, 13))),
    **{title: _of(answer) for title, answer in WRONG_ROWS.items()},
}


def _rounded(sums: bool, quotients: bool, products: bool) -> Candidate:
    """The answer with these of its steps rounded to bfloat16."""

    def candidate(i: Inputs, s: dict[str, Any]) -> Outputs:
        r = _added(i).to(BF16).float() if sums else _added(i)
        y = r * torch.rsqrt(_mean_square(r) + EPS)
        y = (y.to(BF16).float() if quotients else y) * i["weight"].float()
        return _with(i, y.to(BF16).float() if products else y)

    return candidate


def _in_parts(i: Inputs, s: dict[str, Any]) -> Outputs:
    r = _added(i).to(BF16).float()
    parts = [p.square().sum(-1, keepdim=True) for p in torch.split(r, 96, dim=-1)]
    mean_square = torch.stack(parts).flip(0).sum(0) * (1 / s["hidden_size"])
    return _with(i, r * (1 / (mean_square + EPS).sqrt() * i["weight"].float()))


RIGHT: dict[str, Candidate] = {
    "nothing rounded": _rounded(False, False, False),
    "quotients and products rounded": _rounded(False, True, True),
    "all rounded": _rounded(True, True, True),
    "products rounded": _rounded(True, False, True),
    "quotients rounded": _rounded(True, True, False),
    "sums parts, weight before": _in_parts,
    **{title: _of(answer) for title, answer in RIGHT_ROWS.items()},
}
WRONG_ON_CORNERS: dict[tuple[str, str], Candidate] = {
    ("zeros", "0 / 0"): _of(lambda y: (codes(y / right(y)[1].unsqueeze(-1)), right(y)[1])),
}
