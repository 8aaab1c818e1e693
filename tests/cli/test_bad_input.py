"""Everything that a command can be given wrongly: one line, exit code 2, nothing left behind."""

from __future__ import annotations

import ctypes
import os
import re
import shutil
import socket
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from cli_driver import (
    NUMBA,
    SMALL,
    Finished,
    Judged,
    data,
    drive,
    drive_all,
    environment,
    one_line,
    refused,
    refused_in,
)

from roofmark import operators

EVALUATE = ("evaluate", NUMBA, "-o", "rms_norm", "--shapes", SMALL, "--device", "cpu")


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Things that are no candidate."""
    cwd = tmp_path_factory.mktemp("files")
    (cwd / "folder").mkdir()
    os.mkfifo(cwd / "fifo")
    (cwd / "junk.py").write_bytes(bytes(range(256)) * 8)
    (cwd / "nul.py").write_bytes(b"import torch\0\n")
    with (cwd / "huge.py").open("wb") as file:
        file.truncate(1 << 40)
    (cwd / "dangling.py").symlink_to("nowhere")
    (cwd / "loop.py").symlink_to("loop.py")
    here = Path.cwd()
    os.chdir(cwd)  # a socket's path is short
    with socket.socket(socket.AF_UNIX) as bound:
        bound.bind("socket")
        os.chdir(here)
        yield cwd


CANDIDATES = {
    "missing.py": "can't read 'missing.py': No such file",
    "folder": "'folder' is no plain file",
    "": "is no plain file",
    "fifo": "'fifo' is no plain file",
    "socket": "'socket' is no plain file",
    "/dev/zero": "'/dev/zero' is no plain file",
    "/proc/self/mem": "can't read '/proc/self/mem'",
    "junk.py": "not UTF-8",
    "nul.py": "NUL",
    "huge.py": "'huge.py' is larger than 4 MiB",
    "dangling.py": "can't read 'dangling.py': No such file",
    "loop.py": "can't read 'loop.py'",
    "a\nb\x1b[31m.py": r"can't read 'a\\nb\\x1b\[31m.py'",
    "x" * 5000: "can't read",
}


@pytest.fixture(scope="module")
def candidates(files: Path) -> Finished:
    return drive_all({c: ("evaluate", c, "-o", "rms_norm") for c in CANDIDATES}, lambda _: files)


@pytest.mark.parametrize("candidate", CANDIDATES, ids=lambda c: c[:20])
def test_no_candidate(candidates: Finished, candidate: str) -> None:
    refused_in(candidates, candidate, CANDIDATES[candidate])


OPTIONS: dict[str, tuple[tuple[str, ...], str]] = {
    "operator": (("-o", "softmax"), "no operator 'softmax'; known: .*rms_norm"),
    "operator path": (("-o", "../operators/rms_norm"), "no operator"),
    "operator empty": (("-o", ""), "no operator ''"),
    "shape": (("--shapes", "99"), "rms_norm has no shape '99'; it has 0, 1"),
    "no shape": (("--shapes", ""), "--shapes '' lacks an id; write ids with commas"),
    "stray comma": (("--shapes", "0,,x"), "--shapes '0,,x' lacks an id"),
    "range": (("--shapes", "0-3"), "no shape '0-3'"),
    "device": (("--device", "tpu"), "no device 'tpu'; known: auto, cpu, cuda"),
    "backend": (("--backend", "fortran"), "no backend 'fortran'; known: .*numba"),
    "backend elsewhere": (("--backend", "triton"), "backend triton does not run on cpu; it runs on cuda"),
    "release": (("--release", "nowhere"), "no release 'nowhere'"),
    "release file": (("--release", "file"), "no release 'file'"),
    "release empty": (("--release", "empty"), "empty holds no operator"),
    "out file": (("--out", "file"), "can't make the run directory file: "),
    "out below file": (("--out", "file/run"), "can't make the run directory file/run: Not a directory"),
    "out foreign": (("--out", "foreign"), "foreign is not empty and holds no run.*write to another directory"),
    "out unwritable": (("--out", "/sys/run"), "can't make the run directory /sys/run"),
    "out long": (("--out", "x" * 5000), "File name too long"),
    "json long": (("--json", "x" * 300), "can't be written: File name too long"),
    "release long": (("--release", "x" * 5000), "no release"),
    "json folder": (("--json", "empty"), "--json 'empty' is a directory; name a file, or -"),
    "json nowhere": (("--json", "nowhere/x.json"), "there is no directory 'nowhere'"),
    "json fifo": (("--json", "fifo"), "--json 'fifo' is no plain file"),
    "json device": (("--json", "/dev/full"), "--json '/dev/full' is no plain file"),
    "json unwritable": (("--json", "/sys/x.json"), "--json '/sys/x.json' can't be written"),
    "unknown option": (("--nope", "1"), "No such option: --nope.*; roofmark evaluate -h shows"),
    "no value": (("--out",), "Option '--out' requires an argument"),
    "second file": (("b.py",), "unexpected extra argument"),
}  # fmt: skip


@pytest.fixture(scope="module")
def places(tmp_path_factory: pytest.TempPathFactory) -> Path:
    tmp_path = tmp_path_factory.mktemp("places")
    (tmp_path / "file").write_text("text")
    (tmp_path / "empty").mkdir()
    (tmp_path / "foreign").mkdir()
    (tmp_path / "foreign" / "thesis.txt").write_text("mine")
    os.mkfifo(tmp_path / "fifo")
    return tmp_path


@pytest.fixture(scope="module")
def wrong_options(places: Path) -> Finished:
    return drive_all({case: (*EVALUATE, *OPTIONS[case][0]) for case in OPTIONS}, lambda _: places)


@pytest.mark.parametrize("case", OPTIONS)
def test_a_wrong_option(wrong_options: Finished, case: str) -> None:
    refused_in(wrong_options, case, OPTIONS[case][1])


def test_cuda_where_there_is_none(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    if torch.cuda.is_available():
        pytest.skip("there is one")
    cases = {"evaluate": (*EVALUATE, "--device", "cuda"), "hardware": ("hardware", "calibrate", "--device", "cuda")}
    finished = drive_all(cases, lambda _: tmp_path)
    for case in cases:
        refused_in(finished, case, "no CUDA device; use --device cpu")


USAGE = {
    "frobnicate": "No such command 'frobnicate'.*; roofmark -h shows",
    "evaluate": "Missing argument 'FILE'; roofmark evaluate -h shows",
    "evaluate noop": "Missing option '--operator'",
    "score": "Missing argument 'RUN...'",
    "operators show": "Missing argument 'NAME'",
    "operators show rms-norm": "no operator 'rms-norm'; known: ",
    "operators lint": "name operators, or give --all",
    "operators lint rms-norm": "no operator 'rms-norm'; known: ",
    "operators lint rms_norm --all": "name operators, or give --all",
    "operators lint rms_norm --shapes 0,x": "rms_norm has no shape 'x'",
    "operators lint rms_norm --jobs 0": "--jobs",
    "operators lint rms_norm --device tpu": "no device 'tpu'",
    "operators lint rms_norm --release nowhere": "no release 'nowhere'",
    "operators lint rms_norm --json /sys": "is a directory",
    "operators frobnicate": "No such command 'frobnicate'",
    "hardware show h300": "no accelerator 'h300' in the catalogue; it has .*h200",
    "hardware show ../gpus/h200": "no accelerator",
    "hardware calibrate --device tpu": "no device 'tpu'",
    "runs nowhere": "'nowhere' is no directory",
    "runs --json /sys": "is a directory",
    "doctor now": "unexpected extra argument",
    "--frobnicate": "No such option: --frobnicate",
}


@pytest.fixture(scope="module")
def wrong_words(places: Path) -> Finished:
    return drive_all({line: line.split() for line in USAGE}, lambda _: places)


@pytest.mark.parametrize("line", USAGE)
def test_wrong_words(wrong_words: Finished, line: str) -> None:
    refused_in(wrong_words, line, USAGE[line])


def damage(name: str, *, old: str = "", new: str = "", data: bytes = b"") -> Callable[[Path], None]:
    """Replaces text of a file of rms_norm, or the whole file."""

    def apply(root: Path) -> None:
        path = root / "rms_norm" / name
        text = path.read_text()
        assert not old or old in text
        path.write_bytes(data or text.replace(old, new).encode())

    return apply


def unlink(name: str) -> Callable[[Path], None]:
    return lambda root: (root / "rms_norm" / name).unlink()


RELEASES: dict[str, tuple[Callable[[Path], None], str]] = {
    "malformed": (damage("operator.toml", data=b"name = [\n"), "operator.toml is not TOML: Invalid value"),
    "not UTF-8": (damage("operator.toml", data=b'name = "\xff\xfe"\n'), "operator.toml is not TOML"),
    "deep": (damage("shapes.toml", data=b"a = " + b"[" * 50_000), "shapes.toml is not TOML"),
    "lacks a field": (damage("operator.toml", old="formula", new="# formula"), "operator.toml: formula: "),
    "wrong type": (damage("provenance.toml", old="weight = ", new="weight = 'x' # "), "provenance.toml: weight"),
    "other field": (damage("operator.toml", old="name = ", new="nom = 1\nname = "), "operator.toml: nom"),
    "other name": (damage("operator.toml", old='"rms_norm"', new='"rms"'), "names 'rms', its folder 'rms_norm'"),
    "no shapes": (damage("shapes.toml", data=b"# none\n"), "shapes.toml lists no shape"),
    "shape is a number": (damage("shapes.toml", data=b"shape = 3\n"), "shapes.toml: shape is no list of tables"),
    "shape is text": (damage("shapes.toml", data=b'shape = ["x"]\n'), "shapes.toml: shape is no list of tables"),
    "shape lacks dims": (damage("shapes.toml", data=b'[[shape]]\nshape_id = "41"\n'), "shapes.toml: dims"),
    "same shape twice": (damage("shapes.toml", old='shape_id = "40"', new='shape_id = "41"'), "shape_id twice"),
    "no oracle": (unlink("oracle.py"), "rms_norm has no oracle.py"),
    "work is no Python": (damage("work.py", data=b"def work(\n"), "work.py can't be loaded: SyntaxError"),
    "work fails": (damage("work.py", data=b"def work(**sizes):\n    return sizes['x']\n"), "work.py fails on"),
    "other operator": (
        lambda root: (root / "silu_and_mul" / "operator.toml").write_text("["),
        "silu_and_mul/operator.toml is not TOML",
    ),
}  # fmt: skip


@pytest.fixture(scope="module")
def releases(tmp_path_factory: pytest.TempPathFactory) -> Finished:
    root = tmp_path_factory.mktemp("releases")
    ignore = shutil.ignore_patterns("__pycache__")
    for case, (apply, _) in RELEASES.items():
        for name in ("rms_norm", "silu_and_mul"):
            shutil.copytree(operators.HERE / name, root / case / "mine" / name, ignore=ignore)
        apply(root / case / "mine")
    env = environment(PYTHONDONTWRITEBYTECODE="1")
    return drive_all(dict.fromkeys(RELEASES, (*EVALUATE, "--release", "mine")), lambda case: root / case, env=env)


@pytest.mark.parametrize("case", RELEASES)
def test_a_malformed_release(releases: Finished, case: str) -> None:
    refused_in(releases, case, RELEASES[case][1])


def write(name: str, data: bytes) -> Callable[[Path], Any]:
    return lambda run: (run / name).write_bytes(data)


def replace_by_fifo(run: Path) -> None:
    (run / "manifest.json").unlink()
    os.mkfifo(run / "manifest.json")


def corrupt_the_first_line(run: Path) -> None:
    first, rest = (run / "verdicts.jsonl").read_bytes().split(b"\n", 1)
    (run / "verdicts.jsonl").write_bytes(first[:40] + b"\n" + rest)


def other_schema(run: Path) -> None:
    text = (run / "manifest.json").read_text()
    (run / "manifest.json").write_text(text.replace('"schema":1', '"schema":7', 1))


DAMAGES: dict[str, tuple[Callable[[Path], Any], str]] = {
    "junk": (write("manifest.json", bytes(range(256))), "manifest.json is not JSON"),
    "empty": (write("manifest.json", b""), "manifest.json is not JSON"),
    "truncated": (
        lambda run: write("manifest.json", (run / "manifest.json").read_bytes()[:200])(run),
        "manifest.json is not JSON",
    ),
    "schema": (other_schema, "manifest.json has schema 7; this Roofmark reads schema 1"),
    "list": (write("manifest.json", b"[]"), "manifest.json is not a Manifest"),
    "fifo": (replace_by_fifo, "manifest.json is a FIFO, not a file"),
    "middle": (corrupt_the_first_line, "verdicts.jsonl line 1 is not JSON"),
    "no manifest": (lambda run: (run / "manifest.json").unlink(), "holds no run: it has no manifest.json"),
}


@pytest.fixture(scope="module")
def damaged(judged: Judged, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Finished]:
    root = tmp_path_factory.mktemp("damaged")
    for case, (apply, _) in DAMAGES.items():
        apply(shutil.copytree(judged.cwd / "run", root / case / "run"))
    return root, drive_all(dict.fromkeys(DAMAGES, ("score", "run")), lambda case: root / case)


@pytest.mark.parametrize("case", DAMAGES)
def test_a_damaged_run(damaged: tuple[Path, Finished], case: str) -> None:
    refused_in(damaged[1], case, DAMAGES[case][1])


def test_damaged_runs_are_listed_with_what_is_wrong(damaged: tuple[Path, Finished]) -> None:
    listed = data(drive("runs", ".", "--json", "-", cwd=damaged[0]))
    problems = {Path(run["path"]).parts[0]: run["problem"] for run in listed}
    assert problems.keys() == DAMAGES.keys() - {"no manifest"}
    assert all(re.search(DAMAGES[case][1], problem) for case, problem in problems.items())


def test_no_run(judged: Judged, places: Path) -> None:
    refused("score", "nowhere", cwd=places, says="nowhere: No such file")
    refused("score", "file", cwd=places, says="file: Not a directory")
    refused("score", "empty", cwd=places, says="empty holds no run")
    refused("score", judged.cwd / "run", "fifo", cwd=places, says="fifo: Not a directory")


def test_a_torn_last_line_is_left_out_and_said(judged: Judged, tmp_path: Path) -> None:
    run = shutil.copytree(judged.cwd / "run", tmp_path / "run")
    with (run / "verdicts.jsonl").open("ab") as file:
        file.write(b'{"schema":1,"sub')
    done = drive("score", "run", cwd=tmp_path)
    assert done.returncode == 0
    assert "verdicts.jsonl line 3 was cut off after 16 bytes and is left out" in done.stderr


def without_the_rights_of_root() -> None:
    """Makes file modes count for root too: the program that follows has no CAP_DAC_OVERRIDE."""
    libc = ctypes.CDLL(None)
    for capability in (1, 2):
        libc.prctl(24, capability, 0, 0, 0)  # PR_CAPBSET_DROP


def test_what_may_not_be_read_or_written(judged: Judged, tmp_path: Path) -> None:
    shutil.copy(NUMBA, tmp_path / "secret.py")
    shutil.copytree(judged.cwd / "run", tmp_path / "run")
    (tmp_path / "old.json").write_text("{}")
    (tmp_path / "closed").mkdir()
    for name in ("secret.py", "run/verdicts.jsonl", "old.json", "closed"):
        (tmp_path / name).chmod(0)
    for arguments, says in (
        (("evaluate", "secret.py", "-o", "rms_norm"), "can't read 'secret.py': Permission denied"),
        (("score", "run"), "verdicts.jsonl can't be opened: Permission denied"),
        (("runs", "closed"), "can't list closed: Permission denied"),
        ((*EVALUATE, "--out", "closed/run"), "can't make the run directory closed/run: Permission denied"),
        ((*EVALUATE, "--json", "old.json"), "'old.json' can't be written: Permission denied"),
        (("hardware", "list", "--json", "closed/x.json"), "can't be written: Permission denied"),
    ):
        line = one_line(drive(*arguments, cwd=tmp_path, preexec_fn=without_the_rights_of_root))
        assert says in line, line
    (tmp_path / "closed").chmod(0o700)
