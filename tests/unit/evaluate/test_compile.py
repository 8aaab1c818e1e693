"""Evidence of a compilation: objects that hold the kernel count, files that are named like it do not."""

from __future__ import annotations

import random
import struct
import time
from pathlib import Path

import pytest

from roofmark import backends
from roofmark.backends import elf
from roofmark.evaluate.compile import MAX_OBJECT_NAME, collect, file_stem
from roofmark.evaluate.objects import held

NUMBA = backends.load("numba")
TRITON = backends.load("triton")
SYMBOL = "_ZN9candidate8kernel_aB2v4B38c8tJTIeFIjxB2IKSgI4CrvQClQZ6FczSBAA_3dEd"
HASH = "-0123456789abcdef"


def obj(*functions: str, machine: int = elf.X86_64, kind: int = 1, size: int = 4, text: str = ".text",
        info: int = 0x12, home: int = 1) -> bytes:  # fmt: skip
    """A small object file with the named functions in one section."""
    strings, symbols = b"\0", bytes(24)
    for name in functions:
        symbols += struct.pack("<IBBHQQ", len(strings), info, 0, home, 0, size)
        strings += name.encode() + b"\0"
    labels = b"\0" + text.encode() + b"\0.symtab\0.strtab\0"
    parts = [(1, 1, b"\x90" * 8, 0), (2 + len(text), 2, symbols, 3), (10 + len(text), 3, strings, 0),
             (0, 3, labels, 0)]  # fmt: skip
    body, table = b"", bytes(64)
    for label, what, data, link in parts:
        table += struct.pack("<IIQQQQIIQQ", label, what, 0, 0, 64 + len(body), len(data), link, 0, 1, 0)
        body += data
    ident = b"\x7fELF\x02\x01\x01" + bytes(9)
    return struct.pack("<16sHHIQQQIHHHHHH", ident, kind, machine, 1, 0, 0, 64 + len(body), 0, 64, 0, 0, 64, 5, 4) + (
        body + table
    )


def test_an_object_of_numba_holds_its_kernel() -> None:
    data = obj(SYMBOL, "_ZN9candidate2mk12_3clocals_3e5innerB3v11Ex", "cfunc." + SYMBOL)
    assert held("o", data, ["kernel_a", "mk.<locals>.inner", "kernel", "inner_", "mk"]) == {
        "kernel_a",
        "mk.<locals>.inner",
    }
    assert held("o", obj("_ZN9candidate24_d1_8f_d0_b4_d1_80_d0_beB3v13Ex"), ["ядро"]) == {"ядро"}


@pytest.mark.parametrize(
    "data",
    [
        b"", b"not an object", b"\x7fELF", b"kernel_a" * 100, SYMBOL.encode(),
        obj("kernel_a"), obj("_ZN9candidate1xEd"), obj(SYMBOL, machine=183), obj(SYMBOL, kind=3),
        obj(SYMBOL, size=0), obj(SYMBOL, size=99), obj(SYMBOL, info=0x11), obj(SYMBOL, home=0),
        obj(SYMBOL, home=0xFFF1), obj(SYMBOL, home=4000), obj(SYMBOL)[:-1], obj(),
    ],
)  # fmt: skip
def test_anything_else_does_not(data: bytes) -> None:
    assert held("o", data, ["kernel_a"]) == set()


def test_cubins_and_hsacos_are_for_their_machines() -> None:
    cubin = obj("add", machine=elf.CUDA, kind=2, text=".text.add")
    assert held("cubin", cubin, ["add", "ad", "", ".text.add"]) == {"add"}
    assert held("cubin", obj(machine=elf.CUDA, text=".text.add"), ["add"]) == {"add"}
    assert held("cubin", obj("add", text=".text.add"), ["add"]) == set()
    assert held("hsaco", obj("add", machine=elf.AMDGPU, kind=3), ["add", "a"]) == {"add"}
    assert held("hsaco", cubin, ["add"]) == set()


def test_kinds_without_symbols_are_believed_but_not_when_empty() -> None:
    assert held("mlir", b"module {}", ["k", ""]) == {"k"}
    assert held("mlir", b"", ["k"]) == set()


def test_damaged_objects_are_objects_or_nothing() -> None:
    rng = random.Random(7)
    whole = obj(SYMBOL, "x" * 300, ".text")
    for _ in range(3000):
        data = bytearray(whole)
        for _ in range(rng.randint(1, 8)):
            data[rng.randrange(len(data))] = rng.choice((0, 1, 0x7F, 0x80, 0xFF, rng.randrange(256)))
        found = elf.parse(bytes(data[: rng.randint(0, len(data))] if rng.random() < 0.3 else data))
        assert found is None or isinstance(found.functions, frozenset)
    assert all(elf.parse(rng.randbytes(rng.randint(0, 300))) is None for _ in range(300))


def test_a_hostile_object_is_read_in_bounded_time() -> None:
    """4096 sections that are each a table of symbols over the whole file, whose names are the file."""
    count, size = 4096, 4 << 20
    entry = struct.pack("<IIQQQQIIQQ", 0, 2, 0, 0, 64, size - size % 24, 0, 0, 1, 24)
    symbol = struct.pack("<IBBHQQ", 1, 2, 0, 1, 0, 1)
    body = symbol * (size // 24) + bytes(size % 24)
    ident = b"\x7fELF\x02\x01\x01" + bytes(9)
    head = struct.pack("<16sHHIQQQIHHHHHH", ident, 1, 62, 1, 0, 0, 64 + size, 0, 64, 0, 0, 64, count, 0)
    begun = time.monotonic()
    elf.parse(head + body + entry * count)
    assert time.monotonic() - begun < 5


def test_artefacts_count_for_the_kernels_they_hold(tmp_path: Path) -> None:
    folder = tmp_path / "artefacts"
    folder.mkdir()
    (folder / f"kernel_a{HASH}.o").write_bytes(obj(SYMBOL))
    (folder / f"kernel_b{HASH}.o").write_bytes(obj(SYMBOL))  # named like b, holds a
    (folder / f"kernel_abc{HASH}.o").write_bytes(b"text")
    (folder / f"kernel_a{HASH}.cubin").write_bytes(obj(SYMBOL))
    (folder / f"{HASH}.o").write_bytes(obj(SYMBOL))
    (folder / f"link{HASH}.o").symlink_to(folder / f"kernel_a{HASH}.o")
    (folder / ("kernel_a-" + "x" * MAX_OBJECT_NAME + ".o")).write_bytes(obj(SYMBOL))
    found, proven = collect(tmp_path, NUMBA, ["kernel_a", "kernel_b", "kernel_abc", "link", "", "k"])
    assert [a.name for a in found] == [f"kernel_a{HASH}.o"]
    assert proven == {"kernel_a"}


def test_a_kernel_without_a_name_has_no_object(tmp_path: Path) -> None:
    folder = tmp_path / "artefacts"
    folder.mkdir()
    (folder / "anything.cubin").write_bytes(obj("f", machine=elf.CUDA))
    assert collect(tmp_path, TRITON, [""]) == ((), frozenset())
    assert collect(tmp_path / "none", TRITON, ["f"]) == ((), frozenset())


def test_stems_are_what_the_probes_write() -> None:
    assert file_stem("mk.<locals>.inner") == "mk._locals_.inner"
    assert file_stem("ядро") == "_"
