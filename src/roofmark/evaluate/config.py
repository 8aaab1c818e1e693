"""The figures of a run that two runs must share to be compared."""

from __future__ import annotations

from roofmark.records import Record


class Config(Record):
    """How hard the referee looks. Times in s; widths are shares of the median.

    Sampling stops at `target_half_width`, or when calls or time are used up; what is then wider than
    `accepted_half_width` is not known well enough.
    """

    seeds: int = 5
    null_calls: int = 5
    min_calls: int = 15
    max_calls: int = 150
    timing_s: float = 4.0
    eager_timing_s: float = 1.0
    host_calls: int = 5
    target_half_width: float
    accepted_half_width: float
    target_half_width_us: float
    processes: int = 3
    time_budget_ratio: float = 10.0
    first_call_s: float = 120.0
    call_s: float = 20.0

    @classmethod
    def for_device(cls, device: str) -> Config:
        """The usual figures: a CPU shared with other guests is given a wider interval than a GPU."""
        if device == "cpu":
            return cls(target_half_width=0.05, accepted_half_width=0.15, target_half_width_us=2.0)
        return cls(target_half_width=0.02, accepted_half_width=0.02, target_half_width_us=0.1)
