"""The roofline that a run is held against: a vendor's figures, or the CPU's as measured around the run."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime

from roofmark import hardware
from roofmark.errors import DeviceError
from roofmark.evaluate.progress import Progress, Watch
from roofmark.hardware.calibrate import calibrate_cpu, larger
from roofmark.hardware.roofline import t_sol_us
from roofmark.records import Calibration, Roofline, Work
from roofmark.store import Run, StoredRun, append_calibration, load_run


@dataclass
class Limits:
    """`fixed` for a GPU of the catalogue; for the CPU the larger of all calibrations of the run."""

    fixed: Roofline | None
    taken: list[Calibration] = field(default_factory=list)

    def measure(self, run: Run, watch: Watch) -> None:
        """Calibrates the CPU into the run; nothing for a GPU, whose vendor's figures stand."""
        if self.fixed is not None:
            return
        watch(Progress("calibrating the CPU"))
        append_calibration(run, calibrate_cpu())
        self.taken = list(load_run(run.path).calibrations)

    def t_sol_us(self, work: Work) -> float:
        """The least time that `work` can take, as far as is known now, in µs."""
        return t_sol_us(work, self.fixed or larger(self.taken))


def is_open_ended(run: StoredRun) -> bool:
    """Whether a CPU run was cut off after its last verdict and before the calibration that closes it."""
    if run.manifest.roofline is not None or not run.verdicts:
        return False
    judged = max(datetime.fromisoformat(verdict.finished_at) for verdict in run.verdicts)
    taken = [datetime.fromisoformat(calibration.taken_at) for calibration in run.calibrations]
    return not taken or max(taken) < judged.replace(microsecond=0)


def limits_of(device: str) -> Limits:
    """The limits of the device at hand; `DeviceError` where the catalogue has no such GPU."""
    if device == "cpu":
        return Limits(None)
    import torch

    name = torch.cuda.get_device_name()
    known = hardware.match(name)
    if known is None:
        raise DeviceError(f"the catalogue has no {name}", hint="roofmark hardware list shows what it has")
    return Limits(hardware.load(known).roofline)
