"""What an object file says of itself: machine, kind, sections and functions.

The bytes come from a candidate. Whatever they are, reading them ends, and is either an `Elf` or None.
"""

from __future__ import annotations

import re
import struct
from dataclasses import dataclass

X86_64, CUDA, AMDGPU = 62, 190, 224
RELOCATABLE = 1

HEADER = struct.Struct("<16sHHIQQQIHHHHHH")
SECTION = struct.Struct("<IIQQQQIIQQ")
SYMBOL = struct.Struct("<IBBHQQ")
SYMTAB, NOBITS, DYNSYM = 2, 8, 11
FUNCTION, UNDEFINED = 2, 0
MAX_SECTIONS, MAX_SYMBOLS, MAX_NAME = 4096, 16_384, 4096
MAX_NAME_BYTES = 4 << 20  # of all names together


@dataclass(frozen=True)
class Elf:
    """An object file: `sections` with contents, and `functions` defined in one of them, by name."""

    machine: int
    kind: int
    sections: frozenset[str]
    functions: frozenset[str]


@dataclass(frozen=True)
class Section:
    """One entry of the table of sections."""

    name: int
    kind: int
    offset: int
    size: int
    link: int


def parse(data: bytes) -> Elf | None:
    """The object file in `data`: ELF, 64 bits, little-endian; None for anything else."""
    try:
        return read(data)
    except (struct.error, ValueError, IndexError, OverflowError):
        return None


def read(data: bytes) -> Elf:
    """The object file in `data`; raises where it is none."""
    ident, kind, machine, _, _, _, at, *_, entry_size, count, names_at = HEADER.unpack_from(data)
    if ident[:7] != b"\x7fELF\x02\x01\x01" or entry_size != SECTION.size or not 0 < count <= MAX_SECTIONS:
        raise ValueError("no ELF of 64 bits with sections")
    table = cut(data, at, count * SECTION.size)
    fields = SECTION.iter_unpack(table)
    sections = [Section(name, kind_, offset, size, link) for name, kind_, _, _, offset, size, link, *_ in fields]
    names = Names(data)
    present = {names.at(sections[names_at], s.name) for s in sections if s.size and lies_in(data, s)}
    functions: set[str] = set()
    left = MAX_SYMBOLS
    for table_of in (s for s in sections if s.kind in (SYMTAB, DYNSYM) and lies_in(data, s)):
        strings = sections[table_of.link]
        symbols = cut(data, table_of.offset, min(table_of.size, left * SYMBOL.size))
        left -= len(symbols) // SYMBOL.size
        for name, info, _, index, _, size in SYMBOL.iter_unpack(symbols):
            if info & 15 != FUNCTION or not size or not UNDEFINED < index < len(sections):
                continue
            home = sections[index]
            if lies_in(data, home) and size <= home.size:
                functions.add(names.at(strings, name))
    return Elf(machine, kind, frozenset(present), frozenset(functions))


class Names:
    """Reads names out of an object's string tables, a bounded amount in all; what is too long is cut off."""

    def __init__(self, data: bytes) -> None:
        self.data = data
        self.left = MAX_NAME_BYTES

    def at(self, strings: Section, offset: int) -> str:
        """The name at `offset` of a table of strings."""
        start, end = strings.offset + offset, strings.offset + strings.size
        stop = self.data.find(b"\0", start, min(end, start + MAX_NAME))
        name = self.data[start : stop if stop >= 0 else min(end, start + MAX_NAME)][: self.left]
        self.left -= len(name)
        return name.decode("utf-8", "replace")


def lies_in(data: bytes, section: Section) -> bool:
    """Whether a section has contents and they lie in `data`."""
    return section.kind != NOBITS and section.offset + section.size <= len(data)


def cut(data: bytes, offset: int, size: int) -> bytes:
    """`size` bytes at `offset`; raises where `data` has fewer."""
    part = data[offset : offset + size]
    if len(part) != size:
        raise ValueError("ends too early")
    return part


def qualified(symbol: str) -> str:
    """The dotted name in a C++ style symbol `_ZN9candidate6kernel…`, as numba writes them; "" for another."""
    if not symbol.startswith("_ZN"):
        return ""
    parts: list[str] = []
    at = 3
    while (digits := re.compile(r"[1-9]\d{0,3}").match(symbol, at)) and len(parts) < 64:
        start = digits.end()
        at = start + int(digits[0])
        parts.append(symbol[start:at])
    return ".".join(parts)


def escaped(kernel: str) -> str:
    """A Python function's qualified name as numba spells it in symbols: other characters as `_` and their hex."""

    def spelt(found: re.Match[str]) -> str:
        return "".join(f"_{byte:02x}" for byte in found[0].encode("utf-8", "replace"))

    return ".".join(re.sub(r"[^a-zA-Z0-9_]", spelt, part) for part in kernel.split("."))
