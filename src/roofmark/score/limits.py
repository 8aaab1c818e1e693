"""The roofline that a run is held against, and whether a CPU run is calibrated at both its ends."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import UTC, datetime

from roofmark.errors import UserError
from roofmark.hardware.calibrate import larger
from roofmark.records import Calibration, Manifest, Roofline, Verdict


def run_roofline(manifest: Manifest, calibrations: Sequence[Calibration]) -> tuple[Roofline | None, str]:
    """The roofline of a run and where it comes from; None for a run that needs a calibration and has none.

    A device of the catalogue: the vendor's constants in the manifest, whatever was measured. Where the
    manifest has none (`cpu`): for each peak and for the bandwidth the largest of all the run's calibrations.
    """
    if manifest.roofline is not None:
        return manifest.roofline, "vendor's constants"
    if not calibrations:
        return None, "not calibrated"
    count = len(calibrations)
    return larger(calibrations), f"largest of {count} calibrations" if count > 1 else "one calibration"


def calibration_gap(manifest: Manifest, verdicts: Iterable[Verdict], calibrations: Sequence[Calibration]) -> str:
    """Why the calibrations do not enclose the verdicts, empty where they do or none is needed.

    A bound measured only before the run is too low if the machine has since sped up. Calibrations tell whole
    seconds, so verdicts are compared by those.
    """
    if manifest.roofline is not None:
        return ""
    if not calibrations:
        return "there is no calibration of this machine"
    judged = [_moment(verdict.finished_at).replace(microsecond=0) for verdict in verdicts]
    taken = [_moment(calibration.taken_at) for calibration in calibrations]
    if judged and max(taken) < max(judged):
        return "there is no calibration after the last verdict"
    if judged and min(taken) > min(judged):
        return "there is no calibration before the first verdict"
    return ""


def _moment(text: str) -> datetime:
    """The time of an ISO 8601 string, as UTC where it names no zone."""
    try:
        moment = datetime.fromisoformat(text)
    except ValueError as error:
        raise UserError(f"{text[:40]!r} in the run's records is not an ISO 8601 time") from error
    return moment if moment.tzinfo else moment.replace(tzinfo=UTC)
