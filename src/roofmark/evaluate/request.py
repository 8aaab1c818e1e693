"""What is to be judged, on what: the command's words turned into records, before anything runs."""

from __future__ import annotations

import ctypes
import hashlib
import os
import platform
import stat
import sys
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from roofmark import __version__, backends
from roofmark.backends import Backend
from roofmark.errors import DeviceError, UserError
from roofmark.evaluate.config import Config
from roofmark.operators import Operator, Sizes
from roofmark.records import Isolation, Manifest, OperatorPlan, Roofline, Shape
from roofmark.releases import sets

MAX_CANDIDATE_BYTES = 4 << 20
# what a candidate may be called instead of a file
NOOP = Path(backends.__file__).parent / "candidates" / "noop.py"


@dataclass(frozen=True)
class Candidate:
    """One file, read once."""

    name: str
    source: bytes

    @property
    def sha256(self) -> str:
        """The hash of the file."""
        return hashlib.sha256(self.source).hexdigest()


@dataclass(frozen=True)
class Request:
    """One candidate for one operator on one device."""

    candidate: Candidate
    operator: Operator
    shapes: tuple[Shape, ...]
    device: str
    backend: Backend
    release: str
    release_root: Path
    config: Config
    isolation: Isolation


def read_candidate(file: str, operator: Operator) -> Candidate:
    """The candidate that `file` names: a path, or `oracle` or `noop`; `UserError` where it can't be read."""
    path = Path(file)
    if file in ("oracle", "noop") and not os.path.exists(file):
        built_in = operator.reference_text().encode() if file == "oracle" else NOOP.read_bytes()
        return Candidate(file, built_in)
    source = read_plain_file(path)
    try:
        text = source.decode("utf-8")
    except UnicodeDecodeError as error:
        raise UserError(f"{file} is not UTF-8 text", hint="name one Python file with class Model") from error
    if "\0" in text:
        raise UserError(f"{file} is not text: it holds a NUL byte", hint="name one Python file with class Model")
    return Candidate(path.name, source)


def read_plain_file(path: Path) -> bytes:
    """The bytes of a regular file of bounded size; `UserError` for anything else, which is never waited for."""
    name, hint = repr(str(path)), "name one Python file with class Model"
    try:
        if not stat.S_ISREG(path.stat().st_mode):
            raise UserError(f"{name} is no plain file", hint=hint)
        with open(os.open(path, os.O_RDONLY | os.O_NONBLOCK), "rb") as opened:
            if not stat.S_ISREG(os.fstat(opened.fileno()).st_mode):
                raise UserError(f"{name} is no plain file", hint=hint)
            source = opened.read(MAX_CANDIDATE_BYTES + 1) or b""
    except (OSError, ValueError) as error:
        raise UserError(f"can't read {name}: {getattr(error, 'strerror', None) or error}", hint=hint) from error
    if len(source) > MAX_CANDIDATE_BYTES:
        raise UserError(f"{name} is larger than {MAX_CANDIDATE_BYTES >> 20} MiB", hint=hint)
    return source


def choose_shapes(operator: Operator, ids: str | None) -> tuple[Shape, ...]:
    """The shapes that a comma-separated list of ids names, in the operator's order; all where it is None."""
    if ids is None:
        return operator.shapes
    wanted = [part.strip() for part in ids.split(",")]
    if "" in wanted:
        raise UserError(f"--shapes {ids!r} lacks an id", hint="write ids with commas between them, as in 0,3")
    named = {operator.shape(one).shape_id for one in wanted}
    return tuple(shape for shape in operator.shapes if shape.shape_id in named)


def choose_device(name: str) -> str:
    """`cpu` or `cuda`; `auto` takes CUDA where torch sees it."""
    if name not in ("auto", "cpu", "cuda"):
        raise UserError(f"no device {name!r}", hint="known: auto, cpu, cuda")
    if name == "cpu" or (name == "auto" and not has_cuda_driver()):
        return "cpu"
    import torch

    if torch.cuda.is_available():
        return "cuda"
    if name == "cuda":
        raise DeviceError("torch sees no CUDA device", hint="use --device cpu")
    return "cpu"


def has_cuda_driver() -> bool:
    """Whether NVIDIA's driver can be loaded: told in a millisecond, where torch takes seconds."""
    try:
        ctypes.CDLL("libcuda.so.1")
    except OSError:
        return False
    return True


def choose_backend(name: str | None, candidate: Candidate, device: str) -> Backend:
    """The named backend, or the one that the candidate imports; it must be installed and run on `device`."""
    text = candidate.source.decode("utf-8", errors="replace")
    backend = backends.load(name) if name else backends.detect(text, device, candidate.name)
    if device not in backend.devices:
        on = ", ".join(backend.devices)
        raise UserError(f"backend {backend.name} does not run on {device}", hint=f"it runs on {on}")
    if backend.missing():
        raise UserError(f"backend {backend.name} is not installed here", hint=backend.install)
    return backend


def sizes_for(shape: Shape, device: str) -> tuple[Sizes, bool]:
    """The sizes that a shape runs at on a device, and whether they are a stand-in's."""
    if device == "cpu" and shape.stand_in:
        return {**shape.sizes, **shape.stand_in}, True
    return shape.sizes, False


def manifest_of(request: Request, roofline: Roofline | None) -> Manifest:
    """The manifest of a run that begins now."""
    root = request.release_root
    weights = {name: sets.operator(name, root).provenance.weight for name in sets.operator_names(root)}
    operator = request.operator
    shape_ids = tuple(s.shape_id for s in request.shapes)
    plan = OperatorPlan(
        operator=operator.name,
        weight=weights[operator.name],
        shape_ids=shape_ids,
        all_shape_ids=tuple(s.shape_id for s in operator.shapes),
        candidate_sha256=request.candidate.sha256,
        candidate_name=request.candidate.name,
        baselines=tuple(b for b in operator.provenance.baselines if b.shape_id in shape_ids),
    )
    now = datetime.now(UTC)
    return Manifest(
        run_id=f"{now:%Y%m%dT%H%M%S}-{operator.name}-{plan.candidate_sha256[:8]}",
        release=request.release,
        release_sha256=sets.content_sha256(root),
        unavailable=sets.unavailable(root),
        backend=request.backend.name,
        device=request.device,
        roofline=roofline,
        plans=(plan,),
        release_weights=weights,
        config=request.config.model_dump(),
        isolation=request.isolation,
        environment=environment(request),
        started_at=now.isoformat(timespec="seconds"),
    )


def environment(request: Request) -> dict[str, str]:
    """What the machine and its software are, as far as it bears on the figures."""
    found = {"roofmark": __version__, "python": platform.python_version(), "kernel": platform.release()}
    for package in ("torch", "numpy", *request.backend.modules):
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            continue
    if request.device == "cuda":
        import torch

        from roofmark.hardware.cuda import device_state

        found["gpu"] = torch.cuda.get_device_name()
        found["cuda"] = str(torch.version.cuda)
        if driver := device_state().get("driver"):
            found["driver"] = str(driver)
    else:
        found["cpu"] = cpu_name()
        found["cores"] = str(len(os.sched_getaffinity(0)))
    found["platform"] = sys.platform
    return found


def cpu_name(cpuinfo: Path = Path("/proc/cpuinfo")) -> str:
    """The processor's name."""
    for line in cpuinfo.read_text(errors="replace").splitlines() if cpuinfo.is_file() else ():
        if line.startswith("model name"):
            return line.split(":", 1)[1].strip()
    return platform.machine()
