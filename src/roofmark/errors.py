"""The exception tree. Each failure has one owner, who is the one who can mend it.

`RoofmarkError.hint` says what to do; `cli` prints `message` and `hint` on one line and exits with 2.
"""

from __future__ import annotations

from enum import StrEnum


class Owner(StrEnum):
    """Who can mend a failure."""

    PROBLEM = "problem"
    CANDIDATE = "candidate"
    DEVICE = "device"
    AGENT = "agent"
    STORE = "store"
    USER = "user"


class RoofmarkError(Exception):
    """A failure with an owner, one line that says what and where, and a hint that says what to do."""

    owner: Owner = Owner.USER

    def __init__(self, message: str, *, hint: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint

    def __str__(self) -> str:
        return f"{self.message}; {self.hint}" if self.hint else self.message


class UserError(RoofmarkError):
    """The command asked for something that does not exist or can't be read."""


class ProblemError(RoofmarkError):
    """An operator, shape or release is malformed or contradicts itself."""

    owner = Owner.PROBLEM


class DeviceError(RoofmarkError):
    """A device, driver or catalogue entry can't do what was asked."""

    owner = Owner.DEVICE


class StoreError(RoofmarkError):
    """A run directory can't be read, written or continued."""

    owner = Owner.STORE


class IsolationError(DeviceError):
    """This machine offers no isolation for untrusted code."""


class CandidateError(RoofmarkError):
    """The candidate did something that ends its shape; `status` of the verdict says what."""

    owner = Owner.CANDIDATE
