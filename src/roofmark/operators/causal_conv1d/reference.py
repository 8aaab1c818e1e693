"""Depthwise causal convolution over the tokens of one sequence, as in linear-attention layers before q, k and v."""

import torch
from torch import Tensor, nn
from torch.nn import functional


class Model(nn.Module):
    """out = silu(bias + convolution of state and x); the state moves on by the tokens of x, in place."""

    def __init__(self, activation: str) -> None:
        super().__init__()
        self.activation = activation

    def forward(self, x: Tensor, weight: Tensor, bias: Tensor, conv_states: Tensor) -> tuple[Tensor, Tensor]:
        """x [D, T], weight [D, 4], bias [D], conv_states [1, D, 3], all bfloat16; to out [D, T] and conv_states."""
        tokens, width = x.shape[1], weight.shape[1]
        seen = torch.cat([conv_states[0], x], dim=1)
        total = bias.float().unsqueeze(1).repeat(1, tokens)
        for i in range(width):
            total.addcmul_(seen[:, i : i + tokens].float(), weight[:, i : i + 1].float())
        conv_states[0] = seen[:, tokens:]
        out = functional.silu(total) if self.activation == "silu" else total
        return out.to(x.dtype), conv_states
