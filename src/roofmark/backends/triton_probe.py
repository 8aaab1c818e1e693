"""The sandbox's side of the Triton backend: what was compiled, what failed, where the device's time went.

It runs in the candidate's own trust domain: a candidate can patch it or Triton beneath it. What it says is
evidence for an honest candidate and must never be able to better a verdict.

Stdlib, torch and triton only: the runner loads this file alone, before the candidate.
"""

from __future__ import annotations

import hashlib
import os
import re
import sysconfig
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

NAME = "triton"
ROUNDS = 3

_kernels: list[Any] = []


def warm(cache: str) -> None:
    """Compiles a kernel for nobody: the compiler's own start is then done before the first child."""
    import triton
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource

    os.environ["TRITON_CACHE_DIR"] = cache
    triton.compile(ASTSource(triton.jit(_nothing), {"x": "*fp32"}), target=GPUTarget("cuda", 90, 32))


def _nothing(x):  # type: ignore[no-untyped-def]
    pass


def start(cache: str) -> None:
    """Points Triton's cache below `cache`, and from now on notes each kernel that is compiled or loaded."""
    from triton.compiler import compiler

    os.environ["TRITON_CACHE_DIR"] = str(Path(cache) / "triton")
    original = compiler.CompiledKernel.__init__

    def noted(self: Any, *args: Any, **kwargs: Any) -> None:
        original(self, *args, **kwargs)
        _kernels.append(self)

    compiler.CompiledKernel.__init__ = noted


def dump(cache: str) -> list[str]:
    """The names of the candidate's kernels, each with its cubin in `<cache>/artefacts`."""
    folder = Path(cache) / "artefacts"
    own = [kernel for kernel in _kernels if _own(kernel)]
    for kernel in own:
        code = kernel.asm.get("cubin")
        if code:
            _write(folder, str(kernel.name), code)
    return sorted({str(kernel.name) for kernel in own})


def is_compile_error(error: BaseException) -> bool:
    """Whether Triton or ptxas refused the kernel, anywhere along the chain of causes."""
    from triton.compiler import errors as compiler_errors
    from triton.runtime import errors as runtime_errors

    found = (compiler_errors.CompilationError, runtime_errors.OutOfResources)
    ptxas = getattr(runtime_errors, "PTXASError", None)
    kinds = (*found, ptxas) if ptxas else found
    seen: set[int] = set()
    at: BaseException | None = error
    while at is not None and id(at) not in seen:
        seen.add(id(at))
        text = str(at)
        if isinstance(at, kinds):
            return True
        if isinstance(at, RuntimeError) and ("PassManager::run failed" in text or "ptxas" in text):
            return True
        at = at.__cause__ or at.__context__
    return False


def attribute(call: Callable[[], object], device: str) -> dict[str, float]:
    """Device µs of one `call` per class: `triton`, `framework`, `vendor`, `copy`, `compile`, `other`.

    Empty where there is no GPU, or the profiler can't see it.
    """
    import torch

    if not device.startswith("cuda") or not torch.cuda.is_available():
        return {}
    call()
    torch.cuda.synchronize()
    # not torch.profiler: that imports half of torch.compile first
    watch: Any = partial(torch.autograd.profiler.profile, use_device="cuda", use_cpu=False, use_kineto=True)
    try:
        with _launches() as handles, watch() as profile:
            for _ in range(ROUNDS):
                call()
            torch.cuda.synchronize()
    except (RuntimeError, AssertionError):
        return {}
    events = [
        (event.name, event.time_range.elapsed_us())
        for event in profile.function_events or ()
        if str(event.device_type).endswith("CUDA")
    ]
    sums = classify(events, *_own_names(handles))
    return {label: us / ROUNDS for label, us in sums.items()} if events else {}


def classify(events: list[tuple[str, float]], own: set[str], launched: Counter[str]) -> dict[str, float]:
    """The sum of the events' times per class.

    `own` are the symbols of the candidate's kernels that this process has loaded. One that is named like a
    library's kernel counts only as often as it was `launched`: the others are the library's.
    """
    sums = dict.fromkeys((NAME, "framework", "vendor", "copy", "compile", "other"), 0.0)
    left = Counter(launched)
    for name, us in events:
        label = next((label for label, pattern in _CLASSES if pattern.search(name)), "other")
        if name in own:
            borrowed = label in ("vendor", "framework", "copy")
            if not borrowed or left[name] > 0:
                label = NAME
            left[name] -= 1
        sums[label] += us
    return sums


_CLASSES = (
    ("copy", re.compile(r"^(Mem(cpy|set)|mem(cpy|set))")),
    ("compile", re.compile(r"^triton_(poi|red|per|tem|for|split|unk|mm)_|^triton_\w*fused")),
    ("framework", re.compile(r"at::|at_cuda_detail|c10::|thrust::|cub::")),
    (
        "vendor",
        re.compile(
            r"cublas|cudnn|cutlass|cutedsl|xmma|nvjet|cask|cufft|cusolver|cusparse|nccl|flash_(fwd|bwd)|fmha|"
            r"(^|_)(hmma|imma|sgemm|hgemm|dgemm)|gemm|gemv|splitK",
            re.I,
        ),
    ),
)


def _own(kernel: Any) -> bool:
    """Whether the candidate's own file defines the kernel: no installed package does, and not torch.compile."""
    function = getattr(getattr(kernel.src, "fn", None), "fn", None)
    if function is None:
        return True  # given as IR
    where = os.path.abspath(function.__code__.co_filename)
    installed = [sysconfig.get_path(key) for key in ("purelib", "platlib", "stdlib", "platstdlib")]
    return "torchinductor" not in where and not any(where.startswith(path + os.sep) for path in installed)


def _own_names(handles: list[Any]) -> tuple[set[str], Counter[str]]:
    """The symbols of the candidate's loaded kernels, and how often each was launched."""
    loaded = {kernel.function: str(kernel.name) for kernel in _kernels if kernel.function and _own(kernel)}
    return set(loaded.values()), Counter(loaded[handle] for handle in handles if handle in loaded)


@contextmanager
def _launches() -> Iterator[list[Any]]:
    """The function handle of every launch while the context is open; launches inside a CUDA graph don't show."""
    import triton

    handles: list[Any] = []

    def entered(metadata: Any) -> None:
        data = getattr(metadata, "data", None) or {}
        handles.append(data.get("function"))

    chain: Any = getattr(triton.knobs.runtime, "launch_enter_hook", None)
    if not hasattr(chain, "add"):
        yield handles
        return
    chain.add(entered)
    try:
        yield handles
    finally:
        chain.remove(entered)


def _write(folder: Path, name: str, code: bytes) -> None:
    safe = re.sub(r"[^A-Za-z0-9_.]+", "_", name)[:80]
    target = folder / f"{safe}-{hashlib.sha256(code).hexdigest()[:16]}.cubin"
    if target.exists():
        return
    folder.mkdir(parents=True, exist_ok=True)
    part = target.with_suffix(f".{os.getpid()}.part")
    part.write_bytes(code)
    part.replace(target)
