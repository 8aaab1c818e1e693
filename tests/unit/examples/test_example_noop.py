"""The candidate that does nothing takes whatever it is given and returns None."""

from __future__ import annotations

import torch

from roofmark.backends.candidates.noop import Model


def test_it_returns_none_for_anything() -> None:
    assert Model()(torch.ones(1)) is None
    assert Model(eps=1e-6, top_k=8)() is None
