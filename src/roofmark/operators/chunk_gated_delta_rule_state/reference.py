"""The recurrence over chunks of the gated delta rule: the state before each chunk, and what each token writes."""

import torch
from torch import Tensor, nn


class Model(nn.Module):
    """Chunk after chunk in float32: keep the state, take what it already says off the values, write the rest."""

    def __init__(self, chunk_size: int) -> None:
        super().__init__()
        self.chunk_size = chunk_size

    def forward(
        self, k: Tensor, w: Tensor, u: Tensor, g: Tensor, initial_state: Tensor, initial_state_indices: Tensor
    ) -> tuple[Tensor, Tensor, Tensor]:
        """k [B, T, hk, dk], w [B, T, hv, dk], u [B, T, hv, dv] bfloat16, g [B, T, hv] float32, states
        [S, hv, dk, dv] float32, indices [B] int32; to h [B, N, hv, dk, dv], v_new as u, and the states.
        """
        rows = initial_state_indices.long()
        state = initial_state[rows]
        wide_k = k.repeat_interleave(u.shape[2] // k.shape[2], 2)
        h, v_new = [], torch.empty_like(u)
        for start in range(0, u.shape[1], self.chunk_size):
            part = slice(start, start + self.chunk_size)
            keys, reads, values = (x[:, part].float().transpose(1, 2) for x in (wide_k, w, u))
            decay = g[:, part].transpose(1, 2).unsqueeze(-1)
            last = decay[:, :, -1:]
            h.append(state.to(u.dtype))
            new = values - reads @ state
            v_new[:, part] = new.transpose(1, 2)
            state = state * last.exp() + keys.mT @ (new * (last - decay).exp())
        initial_state[rows] = state
        return torch.stack(h, 1), v_new, initial_state
