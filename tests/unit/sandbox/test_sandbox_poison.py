"""Free memory of an output's size is poisoned before each call, in a heap that is as worn as a process's can be."""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest
import torch

from roofmark.sandbox.runner_devices import CpuSide

CALLS = 100
DRAW = random.Random(0)
MAKERS: list[Callable[[], object]] = [
    lambda: torch.zeros(DRAW.randrange(1, 900)),
    lambda: bytearray(DRAW.randrange(1, 4000)),
    lambda: {i: i for i in range(DRAW.randrange(100))},
]


@pytest.mark.parametrize("nbytes", [200, 768, 5000, 50_000])
def test_fresh_memory_holds_poison(nbytes: int) -> None:
    device, kept, missed = CpuSide(torch), [], 0
    for _ in range(CALLS):
        kept += [DRAW.choice(MAKERS)() for _ in range(DRAW.randrange(200))]
        DRAW.shuffle(kept)
        del kept[: DRAW.randrange(200) if len(kept) < 2000 else 1000]
        device.poison(nbytes)
        fresh = torch.empty(nbytes // 2, dtype=torch.bfloat16)
        missed += int(fresh.isnan().sum()) * 2 < fresh.numel()  # the allocator writes its own pointers into free blocks
    assert missed <= CALLS // 10
