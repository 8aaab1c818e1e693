"""Damaged, hostile and foreign directories: one clear line, nothing hung, nothing overwritten."""

from __future__ import annotations

import os
import socket
from collections.abc import Callable
from pathlib import Path

import pytest
from store_records import calibration, manifest, verdict

from roofmark.errors import StoreError
from roofmark.store import append_calibration, append_verdict, find_runs, load_run, open_run, save_artefact
from roofmark.store import lines as store_lines
from roofmark.store import run as store_run


@pytest.fixture
def path(tmp_path: Path) -> Path:
    with open_run(tmp_path / "run", manifest()) as run:
        append_calibration(run, calibration())
        append_verdict(run, verdict("eager"))
        append_verdict(run, verdict("candidate"))
    return tmp_path / "run"


def refused(path: Path, match: str) -> None:
    """Both a reader and a writer say the same, in one line, and change nothing."""
    for attempt in (lambda: load_run(path), lambda: open_run(path, manifest()).__enter__()):
        with pytest.raises(StoreError, match=match) as caught:
            attempt()
        assert "\n" not in str(caught.value)
        assert len(str(caught.value)) < 500


GOOD = verdict("eager", "1").model_dump_json().encode()
MIDDLE = {
    b"": "line 2 is not JSON",
    b"{": "line 2 is not JSON",
    b"\x00\xff\xfe\x80": "line 2 is not JSON",
    b"[]": "line 2 is not a Verdict record",
    b"7": "line 2 is not a Verdict record",
    b"[" * 100_000: "line 2 is not JSON",
    GOOD.replace(b'"schema":1', b'"schema":2'): "line 2 has schema 2; this Roofmark reads schema 1",
    GOOD.replace(b'"schema":1,', b""): "line 2 has schema None",
    GOOD.replace(b'"schema":1', b'"schema":"' + b"x" * 9999 + b'"'): "line 2 has schema",
    GOOD.replace(b'"wall_s":0.5', b'"wall_s":"long"'): "line 2 is not a Verdict: wall_s",
    GOOD.replace(b'"wall_s":0.5', b'"wall_s":0.5,"extra":1'): "line 2 is not a Verdict: extra",
    GOOD.replace(b'"ok"', b'"fine"'): "line 2 is not a Verdict: status",
}


@pytest.mark.parametrize("line", MIDDLE, ids=range(len(MIDDLE)))
def test_a_bad_line_in_the_middle_is_named(path: Path, line: bytes) -> None:
    file = path / "verdicts.jsonl"
    first, second = file.read_bytes().splitlines(keepends=True)
    file.write_bytes(first + line + b"\n" + second)
    refused(path, MIDDLE[line])
    assert file.read_bytes() == first + line + b"\n" + second


def test_a_bad_last_line_with_its_newline_is_not_taken_for_a_torn_one(path: Path) -> None:
    with (path / "calibrations.jsonl").open("ab") as file:
        file.write(b'{"schema":1,\n')
    refused(path, r"calibrations.jsonl line 2 is not JSON")


@pytest.mark.parametrize("data", [b"", b"{", b"\x00" * 64, b"[]", b'{"schema":3}', b'{"schema":1}'])
def test_a_bad_manifest(path: Path, data: bytes) -> None:
    (path / "manifest.json").write_bytes(data)
    refused(path, r"manifest\.json (is not|has schema)")


def fifo(file: Path) -> None:
    os.mkfifo(file)


def unix_socket(file: Path) -> None:
    os.chdir(file.parent)
    with socket.socket(socket.AF_UNIX) as sock:
        sock.bind(file.name)


@pytest.mark.parametrize("name", ["manifest.json", "verdicts.jsonl", "calibrations.jsonl"])
@pytest.mark.parametrize(
    ("make", "kind"),
    [
        (fifo, "a FIFO"),
        (Path.mkdir, "a directory"),
        (unix_socket, "a device or socket"),
        (lambda f: f.symlink_to("/etc/passwd"), "a symbolic link"),
        (lambda f: f.symlink_to("nowhere"), "a symbolic link"),
    ],
)
def test_something_else_in_a_files_place(
    path: Path, name: str, make: Callable[[Path], None], kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(path)
    (path / name).unlink()
    make(path / name)
    refused(path, f"{name} is {kind}, not a file")


def test_too_large_files_are_refused_without_being_held(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with (path / "verdicts.jsonl").open("ab") as file:
        file.truncate(600 << 20)
    monkeypatch.setattr(store_run, "MAX_LINES_BYTES", 1 << 20)
    monkeypatch.setattr(store_lines, "MAX_LINES_BYTES", 1 << 20)
    refused(path, "verdicts.jsonl is larger than 1 MiB")


def test_a_run_never_grows_beyond_what_can_be_read(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with open_run(path, manifest()) as run:
        monkeypatch.setattr(store_run, "MAX_LINES_BYTES", (path / "verdicts.jsonl").stat().st_size + 10)
        with pytest.raises(StoreError, match="would be larger than"):
            append_verdict(run, verdict("eager", "1"))
        with pytest.raises(StoreError, match=r"a line for .* is larger than 16 MiB"):
            append_verdict(run, verdict("eager", "1", message="x" * (17 << 20)))
    assert len(load_run(path).verdicts) == 2


def test_a_disk_that_fills_up_leaves_whole_lines(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write = os.write
    with open_run(path, manifest()) as run:
        monkeypatch.setattr(os, "write", lambda fd, data: write(fd, data[:20]))
        with pytest.raises(StoreError, match="no space left for a whole line"):
            append_verdict(run, verdict("eager", "1"))
        monkeypatch.undo()
        append_verdict(run, verdict("eager", "1"))
    assert len(load_run(path).verdicts) == 3
    assert load_run(path).repairs == ()


def test_no_run(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="No such file"):
        load_run(tmp_path / "none")
    with pytest.raises(StoreError, match="holds no run"):
        load_run(tmp_path)
    (tmp_path / "file").write_text("x")
    with pytest.raises(StoreError, match="can't open the directory"):
        load_run(tmp_path / "file")
    for bad in (tmp_path / "file", tmp_path / "file" / "run"):
        with pytest.raises(StoreError, match="can't make the run directory"):
            open_run(bad, manifest()).__enter__()


def test_a_folder_of_something_else_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "thesis.tex").write_text("x")
    with pytest.raises(StoreError, match=r"is not empty and holds no run: it has 'thesis\.tex'"):
        open_run(tmp_path, manifest()).__enter__()
    assert os.listdir(tmp_path) == ["thesis.tex"]


def test_a_half_made_directory_is_made_again(tmp_path: Path) -> None:
    (tmp_path / ".lock").touch()
    (tmp_path / ".tmp-manifest.json-123").write_text('{"half')
    with open_run(tmp_path, manifest()) as run:
        assert not run.resumed
    assert sorted(os.listdir(tmp_path)) == [".lock", "manifest.json"]


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
def test_an_unwritable_directory(path: Path) -> None:
    path.chmod(0o500)
    try:
        with pytest.raises(StoreError, match="Permission denied"):
            open_run(path, manifest()).__enter__()
        load_run(path)
    finally:
        path.chmod(0o700)


def test_a_directory_that_can_never_be_written() -> None:
    with pytest.raises(StoreError, match="can't make the run directory /proc/roofmark"):
        open_run(Path("/proc/roofmark"), manifest()).__enter__()


def test_a_link_in_place_of_the_artefacts(path: Path, tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    (path / "artefacts").symlink_to(tmp_path / "elsewhere")
    with open_run(path, manifest()) as run, pytest.raises(StoreError, match="can't use the directory"):
        save_artefact(run, name="k", kind="cubin", data=b"x")
    assert not os.listdir(tmp_path / "elsewhere")


def test_runs_are_found_the_newest_first_and_the_damaged_last(tmp_path: Path, path: Path) -> None:
    with open_run(tmp_path / "sub" / "later", manifest(started_at="2026-11-30T00:00:00+00:00")):
        pass
    (tmp_path / "broken").mkdir()
    (tmp_path / "broken" / "manifest.json").write_text("{")
    (tmp_path / "empty").mkdir()
    found = find_runs(tmp_path)
    assert [run.path.name for run in found] == ["later", "run", "broken"]
    assert (found[0].done, found[0].total) == (0, 2)
    assert (found[1].done, found[1].total) == (1, 2)
    assert found[1].candidates == ("kernel.py",)
    assert "manifest.json is not JSON" in found[2].problem
    with pytest.raises(StoreError, match="can't list"):
        find_runs(tmp_path / "none")
