"""How much memory a piece of work took at its peak."""

from __future__ import annotations

import re
import resource
from contextlib import suppress
from pathlib import Path
from types import TracebackType

import torch

STATUS, CLEAR = Path("/proc/self/status"), Path("/proc/self/clear_refs")


class Peak:
    """A context that notes in `nbytes` by how much memory grew inside it, at its peak.

    On CUDA what torch allocated; else the process's resident memory, whose peak Linux resets on demand.
    """

    def __init__(self, device: str) -> None:
        self.device = device
        self.nbytes = 0
        self._before = 0

    def __enter__(self) -> Peak:
        if self.device == "cuda":
            torch.cuda.reset_peak_memory_stats()
            self._before = torch.cuda.memory_allocated()
        else:
            with suppress(OSError):
                CLEAR.write_text("5")
            self._before = _resident_peak()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        peak = torch.cuda.max_memory_allocated() if self.device == "cuda" else _resident_peak()
        self.nbytes = max(peak - self._before, 0)


def _resident_peak() -> int:
    """The most memory that the process has held since the last reset, in bytes."""
    with suppress(OSError):
        found = re.search(r"VmHWM:\s+(\d+) kB", STATUS.read_text())
        if found:
            return int(found[1]) << 10
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss << 10
