"""Inputs of `causal_conv1d`: every tap, the bias and the state count, and silu is met on all of its branches."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from roofmark.operators.draw import Draw
from roofmark.records import OutputSpec

CORNER_TOKENS = {
    "one_token": 1,
    "two_tokens": 2,
    "three_tokens": 3,
    "zeros": 5,
    "zero_state": 9,
    "closed": 9,
    "large": 9,
    "tail": 67,
}
# Single products of this size saturate silu at both ends. Several of them, or one and a bias of its size, would cancel
# out to what is left of their roundings, which the paper's tolerance doesn't allow for.
LARGE = 64.0


def outputs(*, token_count: int, dim: int, width: int, **_: Any) -> tuple[OutputSpec, ...]:
    return (
        OutputSpec(name="out", shape=(dim, token_count), dtype="bfloat16"),
        OutputSpec(name="conv_states", shape=(1, dim, width - 1), dtype="bfloat16"),
    )


def make_inputs(
    *, token_count: int, dim: int, width: int, activation: str, seed: int, device: str
) -> dict[str, Tensor]:
    """`x` [D, T], `weight` [D, 4], `bias` [D] and `conv_states` [1, D, 3], bfloat16.

    Of every sixteen channels six have a bias of -4 to -10: there silu is small and steep, and a sum that is rounded
    on its way shows. One is large and rests on a single tap; a few are zero, as are some tokens.
    """
    draw = Draw(seed, device)
    x = draw.uniform("x", (dim, token_count), torch.bfloat16, 1.5)
    conv_states = draw.uniform("conv_states", (1, dim, width - 1), torch.bfloat16, 1.5)
    weight = draw.uniform("weight", (dim, width), torch.bfloat16, 0.5)
    bias = draw.uniform("bias", (dim,))
    kind = draw.permutation("kind", dim) % 16
    bias = torch.where(kind < 6, 3 * bias - 7, bias).to(torch.bfloat16)
    _single_tap(draw, weight, kind == 6, LARGE / 4)
    zero = draw.permutation("zero", dim) % 64 == 0
    x.masked_fill_(zero.view(dim, 1), 0.0)
    conv_states.masked_fill_(zero.view(1, dim, 1), 0.0)
    x[:, draw.permutation("padding", token_count)[: token_count // 64]] = 0
    return {"x": x, "weight": weight, "bias": bias, "conv_states": conv_states}


def _single_tap(draw: Draw, weight: Tensor, channels: Tensor, factor: float) -> None:
    """Gives some channels one tap alone, any of the four, `factor` times its size."""
    width = weight.shape[1]
    tap = draw.bits("tap", (len(weight), 1), torch.uint8) % width
    alone = torch.where(torch.arange(width, device=weight.device) == tap, factor, 0.0).to(weight.dtype)
    weight.mul_(torch.where(channels.view(-1, 1), alone, torch.ones_like(alone)))


def corners(**sizes: Any) -> dict[str, dict[str, Any]]:
    """The corner cases, each at its own small token count."""
    return {name: {**sizes, "token_count": tokens} for name, tokens in CORNER_TOKENS.items()}


def make_corner(name: str, *, seed: int, device: str, **sizes: Any) -> dict[str, Tensor]:
    made = make_inputs(seed=seed, device=device, **sizes)
    if name == "zeros":  # silu(bias) once the state has passed
        made["x"].zero_()
    elif name == "zero_state":
        made["conv_states"].zero_()
    elif name == "closed":  # silu of -4 to -10 and what small products add
        draw = Draw(seed, device)
        made["bias"].copy_(draw.between("closed", made["bias"].shape, -10.0, -4.0))
        made["weight"].copy_(draw.uniform("weight", made["weight"].shape, scale=0.5))
    elif name == "large":  # exp overflows at both ends
        draw = Draw(seed, device)
        made["bias"].copy_(draw.uniform("bias", made["bias"].shape))
        _single_tap(draw, made["weight"], torch.ones_like(made["bias"], dtype=torch.bool), LARGE)
        made["x"].mul_(4.0)
        made["conv_states"].mul_(4.0)
    return made
