"""The sandbox's side of the numba backend: what was compiled, what failed, where the time went.

It runs in the candidate's own trust domain: a candidate can patch it or numba beneath it. What it says is
evidence for an honest candidate and must never be able to better a verdict.

Stdlib, torch and numba only: the runner loads this file alone, before the candidate.
"""

from __future__ import annotations

import functools
import hashlib
import os
import re
import sysconfig
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path
from typing import Any

NAME = "numba"
ROUNDS = 5
MARK = "roofmark::kernel"

_dispatchers: list[Any] = []


def warm(cache: str) -> None:
    """Compiles a function for nobody: numba's tables are then filled before the first child."""
    del cache
    import numba

    numba.njit(lambda x: x + 1.0).compile("float64(float64)")


def start(cache: str) -> None:
    """Points numba's file cache below `cache`, and from now on notes each dispatcher that is made."""
    import numba
    from numba.core import codegen, dispatcher
    from numba.np.ufunc import ufuncbuilder

    os.environ["NUMBA_CACHE_DIR"] = str(Path(cache) / "numba")
    numba.config.reload_config()  # type: ignore[no-untyped-call]
    for owner in (dispatcher.Dispatcher, ufuncbuilder.UFuncDispatcher):
        _after(owner, "__init__", lambda self, *_args, **_kwargs: _dispatchers.append(self))
    # numba forgets the object code of a cached function once it is linked
    _after(codegen.CodeLibrary, "_set_compiled_object", _keep_object)


def dump(cache: str) -> list[str]:
    """The names of the candidate's compiled functions, each with its object code in `<cache>/artefacts`."""
    folder = Path(cache) / "artefacts"
    names = set()
    for found in list(_dispatchers):
        if not _own(found.py_func):
            continue
        for compiled in list(found.overloads.values()):
            code = _object_code(compiled.library)
            name = str(found.py_func.__qualname__)
            names.add(name)
            if code is not None:
                _write(folder, name, code)
    return sorted(names)


def is_compile_error(error: BaseException) -> bool:
    """Whether numba refused the kernel, anywhere along the chain of causes."""
    from numba.core.errors import NumbaError

    seen: set[int] = set()
    at: BaseException | None = error
    while at is not None and id(at) not in seen:
        seen.add(id(at))
        if isinstance(at, NumbaError) or (isinstance(at, RuntimeError) and "LLVM IR parsing" in str(at)):
            return True
        at = at.__cause__ or at.__context__
    return False


def attribute(call: Callable[[], object], device: str) -> dict[str, float]:
    """µs of one `call` per class: `numba`, `framework`, `vendor`, `copy`, `compile`, `other`.

    The quickest of a few calls on `device` (a CPU): what slows the others is not theirs. The stopwatch and the
    profiler run apart, since the profiler slows what it watches: the stopwatch gives the kernels' time and the
    span, the profiler divides the rest.
    """
    del device
    call()
    rounds = []
    with _stopwatch() as spent:
        for _ in range(ROUNDS):
            spent.clear()
            begun = time.perf_counter_ns()
            call()
            rounds.append(((time.perf_counter_ns() - begun) / 1e3, sum(spent) / 1e3))
    span, inside = min(rounds)
    own_share, classes = _torch_classes(call)
    own = min(span, inside * own_share)
    torch_us = sum(classes.values())
    fit = min(1.0, (span - own) / torch_us) if torch_us else 1.0
    classes = {label: us * fit for label, us in classes.items()}
    return {NAME: own, **classes, "other": max(0.0, span - own - sum(classes.values()))}


def _after(owner: type, name: str, then: Callable[..., object]) -> None:
    original = getattr(owner, name)

    def wrapped(self: Any, *args: Any, **kwargs: Any) -> Any:
        result = original(self, *args, **kwargs)
        then(self, *args, **kwargs)
        return result

    setattr(owner, name, wrapped)


def _keep_object(library: Any, code: bytes) -> None:
    library._roofmark_object = code


def _own(function: Any) -> bool:
    """Whether the candidate's own file defines the function: no installed package does, numba itself included."""
    return not _installed(function.__code__.co_filename)


@functools.cache
def _installed(file: str) -> bool:
    folders = [sysconfig.get_path(key) for key in ("purelib", "platlib", "stdlib", "platstdlib")]
    return any(os.path.abspath(file).startswith(folder + os.sep) for folder in folders)


def _source(compiled: Any) -> Any:
    """The Python function behind a dispatcher, a ufunc or a generalised ufunc."""
    return getattr(compiled, "py_func", None) or compiled._dispatcher.py_func


def _object_code(library: Any) -> bytes | None:
    code = getattr(library, "_roofmark_object", None) or getattr(library, "_compiled_object", None)
    return bytes(code) if code else None


def _write(folder: Path, name: str, code: bytes) -> None:
    safe = re.sub(r"[^A-Za-z0-9_.]+", "_", name)[:80]
    target = folder / f"{safe}-{hashlib.sha256(code).hexdigest()[:16]}.o"
    if target.exists():
        return
    folder.mkdir(parents=True, exist_ok=True)
    part = target.with_suffix(f".{os.getpid()}.part")
    part.write_bytes(code)
    part.replace(target)


@contextmanager
def _stopwatch(mark: Callable[[], AbstractContextManager[object]] = nullcontext) -> Iterator[list[int]]:
    """The ns of each outermost call of a compiled function while the context is open, all inside `mark()`."""
    import threading

    from numba.core import dispatcher
    from numba.np.ufunc import dufunc, gufunc

    spent: list[int] = []
    depth = threading.local()

    def timed(original: Callable[..., Any]) -> Callable[..., Any]:
        def run(*args: Any, **kwargs: Any) -> Any:
            if getattr(depth, "inside", False) or not _own(_source(args[0])):
                return original(*args, **kwargs)
            depth.inside = True
            begun = time.perf_counter_ns()
            try:
                with mark():
                    return original(*args, **kwargs)
            finally:
                spent.append(time.perf_counter_ns() - begun)
                depth.inside = False

        return run

    owners: tuple[Any, ...] = (dispatcher._DispatcherBase, dufunc.DUFunc, gufunc.GUFunc)
    before = [(owner, owner.__dict__.get("__call__")) for owner in owners]
    for owner in owners:
        owner.__call__ = timed(owner.__call__)
    try:
        yield spent
    finally:
        for owner, original in before:
            if original is None:
                del owner.__call__
            else:
                owner.__call__ = original


_CLASSES = (
    ("compile", re.compile(r"Torch-Compiled|CompiledFunction|inductor|cpp_fused", re.I)),
    ("copy", re.compile(r"^aten::(copy_|clone|_to_copy)$")),
    (
        "vendor",
        re.compile(
            r"mkl|onednn|fbgemm|^aten::(mm|bmm|addmm|addbmm|baddbmm|addmv|mv|dot|vdot|_int_mm|_scaled_mm|"
            r"_weight_int8pack_mm|_addmm_activation|convolution|_convolution|\w+_convolution|"
            r"_scaled_dot_product\w*|_fft\w*|linalg\w*)$"
        ),
    ),
)


def _torch_classes(call: Callable[[], object]) -> tuple[float, dict[str, float]]:
    """The share of the kernels' time that is their own, and the µs of torch's operators by class.

    An object-mode block may call torch inside a kernel. Each operator counts without its callees.
    """
    from torch.autograd import profiler

    rounds: list[dict[str, float]] = []
    inside_us = own_us = 0.0
    for _ in range(ROUNDS):
        with (
            _stopwatch(lambda: profiler.record_function(MARK)),
            profiler.profile(use_kineto=False) as profile,
        ):
            call()
        sums = dict.fromkeys(("framework", "vendor", "copy", "compile"), 0.0)
        for event in profile.function_events or ():
            if event.name == MARK:
                inside_us += event.cpu_time_total
                own_us += event.self_cpu_time_total
                continue
            label = next((label for label, name in _CLASSES if name.search(event.name)), "framework")
            sums[label] += float(event.self_cpu_time_total)
        rounds.append(sums)
    share = own_us / inside_us if inside_us else 1.0
    return share, min(rounds, key=lambda sums: sum(sums.values()))
