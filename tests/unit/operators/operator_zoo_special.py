"""Answers that are wrong on special rows alone, which every call of full size must hold.

None where none of the rows is special in that way. Those of the attention operators are in their own zoo.
"""

from __future__ import annotations

import torch
from operator_check import Candidate, Sizes
from operator_zoo_attention import ATTENTION_FORWARD_SPECIAL, BF16, PAGED_ATTENTION_DECODE_SPECIAL, Inputs
from torch import Tensor
from torch.nn.functional import silu

# ---- rms_norm ----------------------------------------------------------------------------------


def _rms(x: Tensor, i: Inputs, s: Sizes) -> Tensor:
    mean_square = x.square().mean(-1, keepdim=True)
    return (x * torch.rsqrt(mean_square + s["eps"]) * i["weight"].float()).to(BF16)


def _scaled_by_the_largest(i: Inputs, s: Sizes) -> Tensor | None:
    """0 / 0 where a row is zero."""
    x = i["x"].float()
    largest = x.abs().amax(-1, keepdim=True)
    x = x / largest
    scale = torch.rsqrt(x.square().mean(-1, keepdim=True) + s["eps"] / largest.square())
    return (x * scale * i["weight"].float()).to(BF16) if (largest == 0).any() else None


def _squares_in_fp16(i: Inputs, s: Sizes) -> Tensor | None:
    x = i["x"].float()
    return _rms(x.clamp(-65504, 65504), i, s) if (x.abs() > 65504).any() else None


def _tiny_taken_for_zero(i: Inputs, s: Sizes) -> Tensor | None:
    x = i["x"].float()
    tiny = (x.square().mean(-1, keepdim=True) < s["eps"] / 16) & (x != 0)
    return _rms(x.masked_fill(tiny, 0.0), i, s) if tiny.any() else None


def _empty_by_its_first(i: Inputs, s: Sizes) -> Tensor | None:
    """A row whose first values are zero is taken for zero."""
    x = i["x"].float()
    empty = (x[:, :4] == 0).all(-1) & (x != 0).any(-1)
    return _rms(x.masked_fill(empty.unsqueeze(-1), 0.0), i, s) if empty.any() else None


# ---- silu_and_mul ------------------------------------------------------------------------------


def _exp_overflows(i: Inputs, s: Sizes) -> Tensor | None:
    gate, up = i["x"].float().chunk(2, -1)
    power = gate.exp()
    return (gate * (power / (1 + power)) * up).to(BF16) if (gate > 89).any() else None


def _gates_cut(i: Inputs, s: Sizes) -> Tensor | None:
    gate, up = i["x"].float().chunk(2, -1)
    return (silu(gate.clamp(-16, 16)) * up).to(BF16) if (gate > 18).any() else None


def _small_gates_dropped(i: Inputs, s: Sizes) -> Tensor | None:
    gate, up = i["x"].float().chunk(2, -1)
    small = (gate.abs() < 2.0**-16) & (gate != 0)
    return (silu(gate.masked_fill(small, 0.0)) * up).to(BF16) if small.any() else None


def _product_in_fp16(i: Inputs, s: Sizes) -> Tensor | None:
    gate, up = i["x"].float().chunk(2, -1)
    made = silu(gate) * up
    return made.clamp(-65504, 65504).to(BF16) if (made.abs() > 2 * 65504).any() else None


# ---- moe_topk_gating_softmax -------------------------------------------------------------------


def no_maximum(i: Inputs, s: Sizes) -> tuple[Tensor, Tensor] | None:
    power = i["gating"].exp()
    p = power / power.sum(-1, keepdim=True)
    weights, ids = p.topk(s["top_k"], dim=-1)
    return (weights, ids.to(torch.int32)) if p.isnan().any() else None


def masked_as_zero(i: Inputs, s: Sizes) -> tuple[Tensor, Tensor] | None:
    gating = i["gating"]
    weights, ids = gating.nan_to_num(neginf=0.0).softmax(-1).topk(s["top_k"], dim=-1)
    shows = gating.isinf() & (gating.amax(-1, keepdim=True) < 8)  # 0 is nothing beside a larger one
    return (weights, ids.to(torch.int32)) if shows.any() else None


def _places_by_value(i: Inputs, s: Sizes) -> tuple[Tensor, Tensor] | None:
    """Each of several equal experts is taken for the first of them."""
    p = i["gating"].softmax(-1)
    weights = p.topk(s["top_k"], dim=-1).values
    ids = (p.unsqueeze(1) == weights.unsqueeze(-1)).int().argmax(-1)
    return (weights, ids.to(torch.int32)) if (weights[:, 1:] == weights[:, :-1]).any() else None


# ---- block_scaled_mm ---------------------------------------------------------------------------


def _matmul(i: Inputs, a: Tensor) -> Tensor:
    left = a.unflatten(1, (-1, 128)) * i["a_scales"].unsqueeze(-1)
    right = i["b"].float().unflatten(1, (-1, 128)) * i["b_scales"].repeat_interleave(128, 0).unsqueeze(-1)
    return (left.flatten(1) @ right.flatten(1).T).to(BF16)


def _kept(i: Inputs, a: Tensor, keep: Tensor) -> Tensor | None:
    """The product with `a` where `keep` holds, 0 elsewhere; None where that leaves out nothing."""
    return None if (keep | (a == 0)).all() else _matmul(i, a * keep)


def _subnormal_codes_flushed(i: Inputs, s: Sizes) -> Tensor | None:
    a = i["a"].float()
    return _kept(i, a, a.abs() >= 2.0**-6)


def _ends_at_an_empty_block(i: Inputs, s: Sizes) -> Tensor | None:
    a = i["a"].float()
    there = (a.unflatten(1, (-1, 128)) != 0).any(-1).cumprod(-1).bool()
    return _kept(i, a, there.repeat_interleave(128, 1))


def _largest_codes_left_out(i: Inputs, s: Sizes) -> Tensor | None:
    """Rows that are full of the largest code are taken for padding."""
    a = i["a"].float()
    return _kept(i, a, (a.abs() < 448).any(-1, keepdim=True))


def _rows_scaled_by_their_largest(i: Inputs, s: Sizes) -> Tensor | None:
    """0 / 0 where a row is zero."""
    a = i["a"].float()
    largest = a.abs().amax(-1, keepdim=True)
    return (_matmul(i, a / largest).float() * largest).to(BF16) if (largest == 0).any() else None


SPECIAL: dict[str, dict[str, Candidate]] = {
    "rms_norm": {
        "scaled by the largest": _scaled_by_the_largest,
        "squares in fp16": _squares_in_fp16,
        "tiny taken for zero": _tiny_taken_for_zero,
        "empty by its first values": _empty_by_its_first,
    },
    "silu_and_mul": {
        "exp overflows": _exp_overflows,
        "gates cut at 16": _gates_cut,
        "small gates dropped": _small_gates_dropped,
        "product in fp16": _product_in_fp16,
    },
    "moe_topk_gating_softmax": {
        "maximum not taken off": no_maximum,
        "-inf taken for 0": masked_as_zero,
        "places by value": _places_by_value,
    },
    "block_scaled_mm": {
        "subnormal codes flushed": _subnormal_codes_flushed,
        "ends at an empty block": _ends_at_an_empty_block,
        "largest codes left out": _largest_codes_left_out,
        "rows scaled by their largest": _rows_scaled_by_their_largest,
    },
    "attention_forward": ATTENTION_FORWARD_SPECIAL,
    "paged_attention_decode": PAGED_ATTENTION_DECODE_SPECIAL,
}
