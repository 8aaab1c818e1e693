"""`fused_qkv_rope` a second time: a head is d / 2 complex numbers, and turning it one complex product in float64."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

BASE = 10000.0
# Elements of qkv worked on at once, 8 bytes each and about four times over.
CHUNK = 1 << 24


def second(inputs: Mapping[str, Tensor], sizes: Mapping[str, Any]) -> tuple[Tensor, ...]:
    """`q` [T, hq, d], `k` and `v` [T, hk, d]; sums with the bias are not rounded before they are turned."""
    qkv, bias = inputs["qkv"], inputs.get("bias")
    queries, keys, size = int(sizes["num_heads"]), int(sizes["num_kv_heads"]), int(sizes["head_dim"])
    tokens, half = len(qkv), size // 2
    made = torch.empty(tokens, queries + 2 * keys, size, dtype=qkv.dtype, device=qkv.device)
    # one turn after another: the i-th number turns by the i-th power of the slowest ratio
    ratio = torch.full((half,), BASE ** (-1.0 / half), dtype=torch.float64, device=qkv.device)
    speed = torch.cumprod(ratio, 0) / ratio
    step = max(1, CHUNK // qkv.shape[1])
    for start in range(0, tokens, step):
        rows = slice(start, start + step)
        heads = qkv[rows].double()
        if bias is not None:
            heads += bias.double()
        heads = heads.view(-1, queries + 2 * keys, 2, half)
        angle = inputs["positions"][rows].double().unsqueeze(-1) * speed
        turn = torch.polar(torch.ones_like(angle), angle).unsqueeze(1)
        turned = torch.complex(*heads[:, : queries + keys].unbind(2)) * turn
        heads[:, : queries + keys] = torch.stack((turned.real, turned.imag), 2)
        made[rows] = heads.flatten(2)
    q, k, v = made.tensor_split((queries, queries + keys), 1)
    return q.contiguous(), k.contiguous(), v.contiguous()
