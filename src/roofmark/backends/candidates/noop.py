"""The candidate that does nothing: it must fail every operator at gate 2, whatever the inputs."""

import torch


class Model(torch.nn.Module):
    """Takes any arguments and returns None."""

    def __init__(self, **init: object) -> None:
        super().__init__()

    def forward(self, *inputs: object) -> None:
        """Returns None."""
