"""A run directory: one manifest, append-only verdicts and calibrations, artefacts by hash.

    manifest.json        written once, atomically
    verdicts.jsonl       one `Verdict` a line
    calibrations.jsonl   one `Calibration` a line, before and after each session
    artefacts/<sha256>   what the compile step produced
    .lock                held by the one writer

A line is one `write` and an `fsync`, so `kill -9` at any byte loses at most the line in flight.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, NamedTuple

from roofmark.errors import StoreError
from roofmark.records import Calibration, Manifest, Status, Verdict
from roofmark.store.files import (
    TMP_PREFIX,
    append_line,
    clear_errors,
    cut_torn_tail,
    open_folder,
    open_regular,
    remove_temporaries,
    write_whole,
)
from roofmark.store.identity import check_same_run
from roofmark.store.lines import (
    MAX_LINE_BYTES,
    MAX_LINES_BYTES,
    Key,
    encode,
    in_words,
    is_planned,
    key_of,
    one_each,
    read_lines,
    read_manifest,
)

MANIFEST, VERDICTS, CALIBRATIONS, LOCK = "manifest.json", "verdicts.jsonl", "calibrations.jsonl", ".lock"
ARTEFACTS = "artefacts"
Subject = Literal["eager", "candidate"]
SUBJECTS: tuple[Subject, ...] = ("eager", "candidate")


@dataclass(frozen=True)
class Run:
    """A run directory open for writing, as `open_run` gives it; valid until its context ends.

    `manifest` is the one on disk. `repairs` says what was mended on opening. `standing` holds the verdicts
    that later ones may not replace; `append_verdict` keeps it.
    """

    path: Path
    manifest: Manifest
    resumed: bool
    repairs: tuple[str, ...]
    folder: int = field(repr=False)
    standing: dict[Key, Verdict] = field(repr=False)


class StoredRun(NamedTuple):
    """What a run directory holds: one verdict for each key, calibrations in order, and what was mended."""

    manifest: Manifest
    verdicts: tuple[Verdict, ...]
    calibrations: tuple[Calibration, ...]
    repairs: tuple[str, ...]


@contextmanager
def open_run(path: Path, manifest: Manifest) -> Iterator[Run]:
    """The run at `path`, made new or resumed, with its lock held until the context ends.

    `StoreError`: another writer holds it, it is a run of something else, it is no run, or it is damaged.
    """
    _make_folder(path)
    folder = open_folder(path)
    try:
        lock = _lock(folder, path)
        try:
            yield _create_or_resume(folder, path, manifest)
        finally:
            os.close(lock)
    finally:
        os.close(folder)


def open_artefacts(folder: int) -> int | None:
    """A descriptor of the run's folder of artefacts; None where it has none, or something else in its place."""
    flags = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
    try:
        return os.open(ARTEFACTS, flags, dir_fd=folder)
    except (FileNotFoundError, NotADirectoryError):
        return None


def load_run(path: Path) -> StoredRun:
    """What the run at `path` holds, read-only: a torn last line is left out and said, not mended."""
    folder = open_folder(path)
    try:
        manifest = read_manifest(folder, path)
        if manifest is None:
            raise StoreError(f"{path} holds no run: it has no {MANIFEST}")
        lines, torn_verdict = read_lines(Verdict, folder, VERDICTS, path)
        calibrations, torn_calibration = read_lines(Calibration, folder, CALIBRATIONS, path)
    finally:
        os.close(folder)
    standing, replaced = one_each(lines, manifest, path / VERDICTS)
    said = [message for message in (torn_verdict, torn_calibration) if message]
    return StoredRun(manifest, tuple(standing.values()), tuple(calibrations), (*said, *replaced))


def append_verdict(run: Run, verdict: Verdict) -> None:
    """Puts the verdict on disk. A second one of its key, or one not asked for, is refused.

    `infrastructure` is ours and not the candidate's: such a verdict may be followed by another of its key.
    """
    key = key_of(verdict)
    before = run.standing.get(key)
    if not is_planned(key, run.manifest):
        raise StoreError(f"{run.path} does not ask for {in_words(key)}")
    if before is not None and before.status is not Status.INFRASTRUCTURE:
        raise StoreError(f"{run.path} has a verdict of {in_words(key)} already: the first one stands")
    _append(run, VERDICTS, verdict)
    run.standing[key] = verdict


def append_calibration(run: Run, calibration: Calibration) -> None:
    """Puts the calibration on disk, after those before it."""
    _append(run, CALIBRATIONS, calibration)


def pending(run: Run, subjects: tuple[Subject, ...] = SUBJECTS) -> list[Key]:
    """The (subject, operator, shape_id) still to judge, in the plan's order, `eager` first of each shape.

    Those that an earlier session ended with `infrastructure` are among them; those of this session are not.
    """
    keys: list[Key] = [
        (subject, plan.operator, shape)
        for plan in run.manifest.plans
        for shape in plan.shape_ids
        for subject in subjects
    ]
    return [key for key in keys if key not in run.standing]


def _append(run: Run, name: str, record: Verdict | Calibration) -> None:
    """Makes the record the last line of the file `name`."""
    line = encode(record)
    if len(line) > MAX_LINE_BYTES:
        raise StoreError(f"a line for {run.path / name} is larger than {MAX_LINE_BYTES >> 20} MiB")
    append_line(run.folder, name, line, MAX_LINES_BYTES, run.path)


def _make_folder(path: Path) -> None:
    """Makes `path` a directory, unless it is one; it may hold a run, or what a crash left of making one."""
    with clear_errors("make the run directory", path):
        if not path.is_dir():
            path.mkdir(parents=True)
            parent = open_folder(path.parent)
            try:
                os.fsync(parent)
            finally:
                os.close(parent)
        names = set(os.listdir(path))
    foreign = sorted(n for n in names if n != LOCK and not n.startswith(TMP_PREFIX))
    if MANIFEST not in names and foreign:
        raise StoreError(
            f"{path} is not empty and holds no run: it has {foreign[0]!r} and no {MANIFEST}",
            hint="write to another directory",
        )


def _lock(folder: int, path: Path) -> int:
    """A descriptor that holds the writer's lock of the run until it is closed or the process ends."""
    fd = open_regular(folder, LOCK, os.O_RDWR | os.O_CREAT, path)
    if fd is None:
        raise StoreError(f"{path} is gone")
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        os.close(fd)
        if not isinstance(error, BlockingIOError):
            raise StoreError(f"can't lock {path / LOCK}: {error.strerror}") from error
        raise StoreError(
            f"{path} is being written by another process", hint="wait for it, or write to another directory"
        ) from error
    return fd


def _create_or_resume(folder: int, path: Path, manifest: Manifest) -> Run:
    """The run in the locked directory, its manifest written or compared, its torn lines cut off."""
    with clear_errors("clean up", path):
        remove_temporaries(folder)
        artefacts = open_artefacts(folder)
        if artefacts is not None:
            try:
                remove_temporaries(artefacts)
            finally:
                os.close(artefacts)
    there = read_manifest(folder, path)
    if there is None:
        write_whole(folder, MANIFEST, encode(manifest), path)
        return Run(path, manifest, False, (), folder, {})
    check_same_run(there, manifest, path)
    said = []
    for name in (VERDICTS, CALIBRATIONS):
        size = cut_torn_tail(folder, name, MAX_LINES_BYTES, path)
        if size:
            said.append(f"repaired {path / name}: cut off a torn last line of {size} bytes")
    verdicts, _ = read_lines(Verdict, folder, VERDICTS, path)
    read_lines(Calibration, folder, CALIBRATIONS, path)
    every, _ = one_each(verdicts, there, path / VERDICTS)
    standing = {key: v for key, v in every.items() if v.status is not Status.INFRASTRUCTURE}
    again = len(every) - len(standing)
    if again:
        said.append(f"judging again what ended with infrastructure: {again}")
    return Run(path, there, True, tuple(said), folder, standing)
