"""Which kernels a compiled object holds, of those that it is said to hold.

The object comes from the candidate's own process: this tells a compilation from none, and a clumsy forgery
from an object. It can't tell who wrote the object.
"""

from __future__ import annotations

from roofmark.backends import elf


def held(kind: str, data: bytes, kernels: list[str]) -> set[str]:
    """The `kernels` that an object of a `kind` (the suffix of its file, without the dot) defines.

    A kind that is no object file (lowered MLIR) has no symbols to look at: it must not be empty, and is believed.
    """
    named = {kernel for kernel in kernels if kernel}
    if kind not in ("o", "cubin", "hsaco"):
        return named if data else set()
    found = elf.parse(data)
    if found is None:
        return set()
    if kind == "o":
        symbols = {suffix for symbol in found.functions for suffix in suffixes(elf.qualified(symbol))}
        on_host = found.machine == elf.X86_64 and found.kind == elf.RELOCATABLE
        return {kernel for kernel in named if on_host and elf.escaped(kernel) in symbols}
    if kind == "cubin":
        code = found.functions | {s.removeprefix(".text.") for s in found.sections if s.startswith(".text.")}
        return named & code if found.machine == elf.CUDA else set()
    return named & found.functions if found.machine == elf.AMDGPU else set()


def suffixes(name: str) -> list[str]:
    """`c`, `b.c` and `a.b.c` of `a.b.c`: a kernel is known by its name within its module."""
    parts = name.split(".")
    return [".".join(parts[at:]) for at in range(max(len(parts) - 16, 0), len(parts))] if name else []
