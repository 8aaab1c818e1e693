"""What a candidate leaves in its cache reaches the referee's disk as few, plain, bounded files, or not at all."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from roofmark.backends import Backend
from roofmark.records import Isolation
from roofmark.sandbox import policy
from roofmark.sandbox.cache import unpack
from roofmark.sandbox.child import CandidateEnded
from roofmark.sandbox.process import Sandbox
from roofmark.sandbox.runner_files import HEADER, MAX_DEPTH, MAX_FILES, pack, plain_name
from roofmark.sandbox.system import memory_file

ROOM = 1 << 20
OLD_NS = 1_600_000_000_123_456_789
PROBE = """
def start(cache): pass
def dump(cache): return []
def is_compile_error(error): return False
def attribute(call, device): return {"other": 1.0}
"""
MODEL = """
import json, os, sys
CACHE = os.path.join(os.path.dirname(os.getcwd()), "cache")
STORED = json.loads(sys.argv[-1])["cache"]
class Model:
    def __init__(self): pass
    def __call__(self): pass
"""
SEEN = (
    MODEL
    + """
def text(path):
    try: return open(path).read()
    except OSError as error: return repr(error)
def tree(top): return sorted(os.path.join(at, n) for at, folders, files in os.walk(top) for n in folders + files)
def attempt(make):
    try: make(); return "allowed"
    except OSError as error: return repr(error)
seen = {
    "argv": sys.argv, "orig_argv": sys.orig_argv, "cwd": os.getcwd(), "environ": dict(os.environ),
    "mounts": text("/proc/self/mountinfo").splitlines(), "own": text("/proc/self/cmdline"),
    "init": text("/proc/1/cmdline"), "limits": text("/proc/self/limits"),
    "access": [os.access(STORED, mode) for mode in (os.R_OK, os.W_OK, os.X_OK)],
    "stored": tree(STORED), "scratch": tree(os.path.dirname(CACHE)),
    "write": attempt(lambda: open(STORED + "/x", "w")), "chmod": attempt(lambda: os.chmod(STORED, 0o777)),
    "fds": [(f, text(f"/proc/self/fdinfo/{f}").split()[3]) for f in sorted(os.listdir("/proc/self/fd"))[:-1]],
    "pids": sorted(p for p in os.listdir("/proc") if p.isdigit()),
    "modules": sorted(m for m in sys.modules if "roofmark" in m), "main": sorted(vars(sys.modules["__main__"])),
}
json.dump(seen, open(CACHE + "/seen.json", "w"))
"""
)
HOSTILE = (
    MODEL
    + """
os.chdir(CACHE)
os.mkdir("good"); open("good/kernel.o", "wb").write(b"code"); os.utime("good/kernel.o", ns=(NS, NS))
os.symlink("/etc/passwd", "link"); os.symlink("/usr", "folder"); os.mkfifo("fifo")
open("bad\\nname", "w"); open(b"\\xff\\xfe", "w"); open("secret", "w").close(); os.chmod("secret", 0)
os.mkdir("closed"); open("closed/x", "w").close(); os.chmod("closed", 0)
open("huge", "wb").truncate(1 << 29)
for _ in range(30): os.mkdir("d"); os.chdir("d"); open("f", "w").close()
""".replace("NS", str(OLD_NS))
)
LEVELS = [level for level in policy.available() if level is not Isolation.UNSAFE]


@pytest.fixture
def backend(tmp_path: Path) -> Backend:
    probe = tmp_path / "probe.py"
    probe.write_text(PROBE)
    return Backend("none", (), ("cpu",), (".o",), probe, "")


@pytest.fixture
def memory() -> Iterator[int]:
    fd = memory_file("pack", ROOM)
    yield fd
    os.close(fd)


def files_of(folder: Path) -> dict[str, bytes]:
    return {str(p.relative_to(folder)): p.read_bytes() for p in folder.rglob("*") if p.is_file()}


def entry(name: bytes, data: bytes = b"", *, mtime_ns: int = OLD_NS, size: int | None = None) -> bytes:
    return HEADER.pack(len(name), mtime_ns, len(data) if size is None else size) + name + data


def load(sandbox: Sandbox, source: str) -> None:
    with sandbox.fork({"device": "cpu", "touch_bytes": 0}, source.encode()) as child:
        child.request({"op": "load", "init": {}}, timeout_s=30)


def test_files_keep_names_times_and_contents(tmp_path: Path, memory: int) -> None:
    left, kept = tmp_path / "left", tmp_path / "kept"
    kept.mkdir()
    wanted = {"a/b/kernel.nbi": b"\0" * 70_000, "ядро-1.o": b"", "z": b"z"}
    for name, data in wanted.items():
        (left / name).parent.mkdir(parents=True, exist_ok=True)
        (left / name).write_bytes(data)
        os.utime(left / name, ns=(OLD_NS, OLD_NS))
    (kept / "of an earlier shape").write_text("old")
    assert unpack(memory, pack(str(left), memory, ROOM), kept) == 3
    assert files_of(kept) == wanted
    assert {(kept / name).stat().st_mtime_ns for name in wanted} == {OLD_NS}


def test_what_is_no_plain_file_or_does_not_fit_stays_behind(tmp_path: Path, memory: int) -> None:
    left, kept = tmp_path / "left", tmp_path / "kept"
    left.mkdir(), kept.mkdir()
    (left / "good").write_text("x")
    (left / "link").symlink_to("/etc/passwd")
    (left / "folder").symlink_to("/etc")
    os.mkfifo(left / "fifo")
    (left / "bad\x1bname").write_text("x")
    with (left / "huge").open("wb") as file:
        file.truncate(1 << 40)
    deep = left.joinpath(*["d"] * MAX_DEPTH)
    deep.mkdir(parents=True)
    (deep / "too deep").write_text("x")
    (deep.parent / "deepest").write_text("x")
    assert unpack(memory, pack(str(left), memory, ROOM), kept) == 2
    assert set(files_of(kept)) == {"good", "d/" * (MAX_DEPTH - 1) + "deepest"}


def test_no_more_than_so_many_files(tmp_path: Path, memory: int) -> None:
    left, kept = tmp_path / "left", tmp_path / "kept"
    left.mkdir(), kept.mkdir()
    for n in range(MAX_FILES + 5):
        (left / str(n)).touch()
    assert unpack(memory, pack(str(left), memory, ROOM), kept) == MAX_FILES


def test_no_folder_is_an_empty_pack(tmp_path: Path, memory: int) -> None:
    (tmp_path / "file").touch()
    (tmp_path / "link").symlink_to("/usr")
    assert [pack(str(tmp_path / name), memory, ROOM) for name in ("none", "file", "link")] == [0, 0, 0]


@pytest.mark.parametrize(
    "data",
    [
        entry(b"../x", b"1"), entry(b"/etc/x", b"1"), entry(b"a//b"), entry(b"."), entry(b"a/"), entry(b""),
        entry(b"a\nb"), entry(b"a\0b"), entry(b"\xff"), entry(b"x" * 256), entry(b"a/" * 8 + b"b"),
        entry(b"a", b"1") * 2, entry(b"a") + entry(b"a/b"), entry(b"a/b") + entry(b"a"),
        entry(b"a", mtime_ns=-1), entry(b"a", size=-1), entry(b"a", size=1 << 62), entry(b"a", b"1", size=2),
        b"\0", b"\xff" * 100, HEADER.pack(9, 0, 0) + b"short",
        b"".join(entry(b"%d" % n) for n in range(MAX_FILES + 1)),
    ],
)  # fmt: skip
def test_a_forged_pack_is_refused_whole(tmp_path: Path, memory: int, data: bytes) -> None:
    kept = tmp_path / "kept"
    kept.mkdir()
    (kept / "before").write_text("x")
    data = entry(b"fine", b"1") + data
    os.pwrite(memory, data, 0)
    with pytest.raises(ValueError):
        unpack(memory, len(data), kept)
    assert set(files_of(tmp_path)) == {"kept/before"}


@pytest.mark.parametrize("used", [None, -1, ROOM + 1, True, 2.0, "3", [4]])
def test_a_size_that_can_not_be_is_refused(tmp_path: Path, memory: int, used: object) -> None:
    with pytest.raises(ValueError):
        unpack(memory, used, tmp_path)


def test_plain_names() -> None:
    assert all(map(plain_name, ["a", "a/b.c", "candidate.f-12.py311.1.nbc", "mk._locals_.x", ".hidden", "a b"]))
    assert not any(map(plain_name, ["", "/", "/a", "a/..", "./a", "a/", "\ud800", "a\x7f", "a/" * 600 + "b"]))


@pytest.mark.parametrize("level", LEVELS)
def test_phases_look_the_same_from_inside(level: Isolation, backend: Backend) -> None:
    def told(sandbox: Sandbox) -> dict[str, object]:
        load(sandbox, SEEN)
        sandbox.keep_cache()
        seen: dict[str, object] = json.loads((sandbox.cache_dir / "seen.json").read_text())
        (sandbox.cache_dir / "seen.json").unlink()
        mounts = seen["mounts"]
        assert isinstance(mounts, list)
        # a mount's own number and that of its file system are drawn by the kernel
        seen["mounts"] = [re.sub(r"^\d+ \d+ \d+:\d+ ", "", line) for line in mounts]
        return seen

    with Sandbox(level, "cpu", backend) as runner:
        with Sandbox(level, "cpu", backend, twin=runner) as compiler:
            first = told(compiler)
        second = told(runner)
    assert first == second
    assert first["access"] == [True, False, True]
    assert "allowed" not in (first["write"], first["chmod"])
    assert first["modules"] == []
    assert "Runner" not in str(first["main"])
    assert not runner.folder.exists()


@pytest.mark.parametrize("level", LEVELS)
def test_a_hostile_cache_leaves_its_plain_files_alone(level: Isolation, backend: Backend) -> None:
    limits = policy.Limits(cache_bytes=ROOM)
    with Sandbox(level, "cpu", backend, limits=limits) as runner:
        with Sandbox(level, "cpu", backend, twin=runner, limits=limits) as compiler:
            load(compiler, HOSTILE)
            compiler.keep_cache()
            kept = files_of(runner.cache_dir)
            assert kept.pop("good/kernel.o") == b"code"
            assert set(kept) <= {"d/" * n + "f" for n in range(1, MAX_DEPTH)} | {"secret", "closed/x"}
            assert (runner.cache_dir / "good" / "kernel.o").stat().st_mtime_ns == OLD_NS
            found = "assert open(CACHE + '/good/kernel.o', 'rb').read() == b'code'\n"
            stamped = f"assert os.stat(CACHE + '/good/kernel.o').st_mtime_ns == {OLD_NS}\n"
            load(compiler, MODEL + found)  # no other file of the last child is met by the next
        load(runner, MODEL + found + stamped + "assert sorted(os.listdir(CACHE)) == sorted(os.listdir(STORED))\n")


def test_a_zygote_that_is_gone_keeps_nothing_and_comes_back(backend: Backend) -> None:
    with Sandbox(LEVELS[0], "cpu", backend) as sandbox:
        load(sandbox, MODEL + "open(CACHE + '/a', 'w').write('1')\n")
        sandbox.keep_cache()
        assert sandbox.process is not None
        sandbox.process.kill()
        sandbox.process.wait()
        sandbox.keep_cache()
        assert files_of(sandbox.cache_dir) == {"a": b"1"}
        load(sandbox, MODEL)


def test_the_obvious_places_to_patch_are_not_there(backend: Backend) -> None:
    patch = MODEL + "sys.modules['roofmark_probe'].attribute = lambda *a: {'numba': 1.0}\n"
    main = MODEL + "sys.modules['__main__'].Runner.attribute = lambda *a: {'shares': {'numba': 1.0}}\n"
    with Sandbox(LEVELS[0], "cpu", backend) as sandbox:
        for source in (patch, main):
            with pytest.raises(CandidateEnded, match=r"KeyError|AttributeError"):
                load(sandbox, source)
