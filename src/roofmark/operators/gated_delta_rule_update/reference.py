"""The gated delta rule over the tokens of each sequence, from a state of a pool and back to it."""

import torch
from torch import Tensor, nn
from torch.nn import functional

CHUNK = 64


class Model(nn.Module):
    """S decays, then k writes what v says beyond what S says already, then q reads; in float32.

    Some tokens at a time: what they write follows from a triangular system, since each sees those before it.
    """

    def __init__(self, softplus_beta: float, softplus_threshold: float, use_qk_l2norm: bool) -> None:
        super().__init__()
        self.softplus_beta = softplus_beta
        self.softplus_threshold = softplus_threshold
        self.use_qk_l2norm = use_qk_l2norm

    def forward(
        self,
        A_log: Tensor,
        a: Tensor,
        dt_bias: Tensor,
        q: Tensor,
        k: Tensor,
        v: Tensor,
        b: Tensor,
        initial_state: Tensor,
        initial_state_indices: Tensor,
    ) -> tuple[Tensor, Tensor]:
        """A_log [hv] float32, dt_bias [hv], a, b [B, T, hv], q, k [B, T, hq, dk], v [B, T, hv, dv] bfloat16,
        states [S, hv, dk, dv] float32, indices [B] int32; to out as v, and the states.
        """
        rows = initial_state_indices.long()
        owned = rows >= 0
        state = initial_state[rows.clamp(min=0)] * owned.view(-1, 1, 1, 1)
        gate = functional.softplus(a.float() + dt_bias.float(), self.softplus_beta, self.softplus_threshold)
        group = v.shape[2] // q.shape[2]
        tokens = {
            "decay": (gate * -A_log.exp()).unsqueeze(-1),
            "beta": b.float().sigmoid().unsqueeze(-1),
            "q": self.normalised(q).repeat_interleave(group, 2) * q.shape[3] ** -0.5,
            "k": self.normalised(k).repeat_interleave(group, 2),
            "v": v.float(),
        }
        out = torch.empty_like(v)
        for start in range(0, v.shape[1], CHUNK):
            part = slice(start, start + CHUNK)
            read, state = advance(state, **{name: x[:, part].transpose(1, 2) for name, x in tokens.items()})
            out[:, part] = read.transpose(1, 2)
        initial_state[rows[owned]] = state[owned]
        return out, initial_state

    def normalised(self, x: Tensor) -> Tensor:
        """Rows of norm one, float32, where that is asked for."""
        wide = x.float()
        return wide * torch.rsqrt(wide.square().sum(-1, keepdim=True) + 1e-6) if self.use_qk_l2norm else wide


def advance(state: Tensor, decay: Tensor, beta: Tensor, q: Tensor, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
    """What some tokens, [B, hv, tokens, …], read, and the state [B, hv, dk, dv] after them."""
    total = decay.cumsum(2)
    last = total[:, :, -1:]
    later = torch.ones(k.shape[2], k.shape[2], dtype=torch.bool, device=k.device).triu(1)
    between = (total - total.mT).masked_fill(later, -torch.inf).exp()
    system = k @ k.mT * between * beta
    wanted = (v - k @ state * total.exp()) * beta
    new = torch.linalg.solve_triangular(system, wanted, upper=False, unitriangular=True)
    read = q @ state * total.exp() + (q @ k.mT * between) @ new
    return read, state * last.exp() + (k * (last - total).exp()).mT @ new
