"""Writing, resuming and reading a run."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from store_records import calibration, manifest, plan, verdict

from roofmark.errors import StoreError
from roofmark.records import Baseline, Isolation, Roofline, Status
from roofmark.store import (
    append_calibration,
    append_verdict,
    load_run,
    open_run,
    pending,
    save_artefact,
)

ALL = [verdict(subject, shape) for shape in "01" for subject in ("eager", "candidate")]


def written(path: Path) -> Path:
    with open_run(path, manifest()) as run:
        append_calibration(run, calibration())
        for v in ALL:
            append_verdict(run, v)
        append_calibration(run, calibration("2026-11-29T11:00:00+00:00"))
    return path


def test_what_is_written_is_read_back_bit_for_bit(tmp_path: Path) -> None:
    stored = load_run(written(tmp_path / "deep" / "run"))
    assert stored.manifest == manifest()
    assert stored.verdicts == tuple(ALL)
    assert [c.taken_at[11:13] for c in stored.calibrations] == ["10", "11"]
    assert stored.repairs == ()


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.floats(allow_nan=False), min_size=1, max_size=5), st.text())
def test_any_float_and_any_text_round_trips(
    tmp_path_factory: pytest.TempPathFactory, floats: list[float], text: str
) -> None:
    path = tmp_path_factory.mktemp("round") / "run"
    timing = ALL[0].timing.model_copy(update={"samples_us": tuple(floats)})
    v = verdict(message=text, timing=timing)
    with open_run(path, manifest()) as run:
        append_verdict(run, v)
    assert load_run(path).verdicts == (v,)


def test_half_surrogates_in_a_message_do_not_stop_the_run(tmp_path: Path) -> None:
    with open_run(tmp_path / "r", manifest()) as run:
        append_verdict(run, verdict(message="\ud800 is not text"))
    assert load_run(tmp_path / "r").verdicts[0].message == "? is not text"


def test_pending_shrinks_in_the_order_of_the_plan(tmp_path: Path) -> None:
    with open_run(tmp_path / "r", manifest()) as run:
        assert not run.resumed
        assert pending(run) == [(v.subject, "rms_norm", v.shape_id) for v in ALL]
        append_verdict(run, ALL[0])
        append_verdict(run, ALL[3])
    with open_run(tmp_path / "r", manifest(run_id="r2", started_at="later")) as run:
        assert run.resumed
        assert run.manifest.run_id == "r1"
        assert pending(run) == [("candidate", "rms_norm", "0"), ("eager", "rms_norm", "1")]
        assert pending(run, ("candidate",)) == [("candidate", "rms_norm", "0")]


def test_a_second_verdict_is_refused_and_the_first_stands(tmp_path: Path) -> None:
    path = written(tmp_path / "r")
    with open_run(path, manifest()) as run, pytest.raises(StoreError, match="the first one stands"):
        append_verdict(run, verdict(status=Status.CRASH))
    assert load_run(path).verdicts == tuple(ALL)


def test_a_reader_that_meets_two_verdicts_refuses(tmp_path: Path) -> None:
    path = written(tmp_path / "r")
    file = path / "verdicts.jsonl"
    file.write_bytes(file.read_bytes() + file.read_bytes().splitlines(keepends=True)[0])
    with pytest.raises(StoreError, match=r"verdicts.jsonl line 5 is a second verdict of eager on rms_norm"):
        load_run(path)


def test_infrastructure_is_judged_again_and_the_later_verdict_stands(tmp_path: Path) -> None:
    ours = verdict(status=Status.INFRASTRUCTURE, message="the device fell off the bus")
    with open_run(tmp_path / "r", manifest()) as run:
        append_verdict(run, ours)
        assert ("candidate", "rms_norm", "0") not in pending(run)  # not in this session
    with open_run(tmp_path / "r", manifest()) as run:
        assert run.repairs == ("judging again what ended with infrastructure: 1",)
        assert ("candidate", "rms_norm", "0") in pending(run)
        append_verdict(run, verdict())
    stored = load_run(tmp_path / "r")
    assert stored.verdicts == (verdict(),)
    assert "replaces an infrastructure failure" in stored.repairs[0]


def test_a_verdict_that_nobody_asked_for_is_refused(tmp_path: Path) -> None:
    with open_run(tmp_path / "r", manifest()) as run, pytest.raises(StoreError, match="does not ask for"):
        append_verdict(run, verdict(shape="7"))
    path = written(tmp_path / "s")
    file = path / "verdicts.jsonl"
    file.write_bytes(file.read_bytes() + verdict(shape="7").model_dump_json().encode() + b"\n")
    with pytest.raises(StoreError, match="line 5 judges candidate on rms_norm shape 7"):
        load_run(path)


DIFFERENT = {
    "release_sha256": manifest(release_sha256="b" * 64),
    "backend": manifest(backend="triton"),
    "device": manifest(device="H200"),
    "roofline": manifest(roofline=Roofline(device="x", peak_flops={}, bandwidth_bytes_per_s=1)),
    "candidate_sha256 of rms_norm": manifest(plans=(plan(candidate_sha256="d" * 64),)),
    "shape_ids of rms_norm": manifest(plans=(plan(shapes=("0",)),)),
    "weight of rms_norm": manifest(plans=(plan(weight=0.5),)),
    "plans": manifest(plans=(plan(), plan("l2_norm"))),
    "release_weights": manifest(release_weights={}),
    "isolation": manifest(isolation=Isolation.UNSAFE),
    "config.seeds": manifest(config={"seeds": 6}),
    "config.new": manifest(config={"seeds": 5, "new": 1}),
    "environment.torch": manifest(environment={"torch": "2.14.0"}),
    "environment.cores": manifest(environment={"cores": "2"}),
    "environment.driver": manifest(environment={"driver": "580.2"}),
}


@pytest.mark.parametrize("field", DIFFERENT)
def test_another_run_is_refused_by_the_name_of_the_field(tmp_path: Path, field: str) -> None:
    path = written(tmp_path / "r")
    before = {f.name: f.read_bytes() for f in path.iterdir()}
    with pytest.raises(StoreError, match=f"holds a run of another .*: {field} is") as caught:
        open_run(path, DIFFERENT[field]).__enter__()
    assert "\n" not in str(caught.value)
    assert {f.name: f.read_bytes() for f in path.iterdir()} == before


def test_what_does_not_make_another_run(tmp_path: Path) -> None:
    path = written(tmp_path / "r")
    same = manifest(
        run_id="x",
        started_at="y",
        release="z",
        environment={"host": "two"},
        plans=(plan(candidate_name="k2", baselines=(Baseline(shape_id="0", gpu="G", backend="b", time_us=1),)),),
    )
    with open_run(path, same) as run:
        assert pending(run) == []


def test_two_writers_are_refused(tmp_path: Path) -> None:
    with (
        open_run(tmp_path / "r", manifest()),
        pytest.raises(StoreError, match="is being written by another process"),
        open_run(tmp_path / "r", manifest()),
    ):
        pass
    with open_run(tmp_path / "r", manifest()):
        pass
    load_run(tmp_path / "r")


def test_threads_append_whole_lines(tmp_path: Path) -> None:
    shapes = tuple(str(n) for n in range(40))
    many = manifest(plans=(plan(shapes=shapes),))
    with open_run(tmp_path / "r", many) as run:
        threads = [threading.Thread(target=append_verdict, args=(run, verdict(shape=s))) for s in shapes]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert {v.shape_id for v in load_run(tmp_path / "r").verdicts} == set(shapes)


@pytest.mark.parametrize("name", ["verdicts.jsonl", "calibrations.jsonl"])
def test_cut_at_every_byte_nothing_complete_is_lost(tmp_path: Path, name: str) -> None:
    path = written(tmp_path / "r")
    whole = (path / name).read_bytes()
    for size in range(len(whole) + 1):
        (path / name).write_bytes(whole[:size])
        kept = whole[:size].count(b"\n")
        torn = size - (whole[:size].rfind(b"\n") + 1)
        stored = load_run(path)
        assert len(stored.repairs) == (1 if torn else 0)
        assert (path / name).stat().st_size == size  # a reader mends nothing
        if torn and size % 29:
            continue  # opening to write costs a few fsyncs
        with open_run(path, manifest()) as run:
            assert [f"torn last line of {torn} bytes" in said for said in run.repairs] == ([True] if torn else [])
            if name == "verdicts.jsonl":
                assert len(pending(run)) == 4 - kept
        assert (path / name).read_bytes() == b"".join(whole.splitlines(keepends=True)[:kept])


def test_a_torn_line_then_a_new_one(tmp_path: Path) -> None:
    path = written(tmp_path / "r")
    file = path / "verdicts.jsonl"
    file.write_bytes(file.read_bytes()[:-9])
    with open_run(path, manifest()) as run:
        append_verdict(run, ALL[3])
    assert load_run(path) == (manifest(), tuple(ALL), load_run(path).calibrations, ())


KILLED = """
import sys
sys.path.insert(0, sys.argv[2])
from pathlib import Path
from store_records import manifest, plan, verdict
from roofmark.store import append_verdict, open_run, pending
with open_run(Path(sys.argv[1]), manifest(plans=(plan(shapes=tuple(map(str, range(2000)))),))) as run:
    for _, _, shape in pending(run, ("candidate",)):
        append_verdict(run, verdict(shape=shape))
        print(shape, flush=True)
"""


def test_kill_9_loses_nothing_that_was_acknowledged(tmp_path: Path) -> None:
    acknowledged: set[str] = set()
    for lines in (1, 17, 3):
        command = [sys.executable, "-c", KILLED, str(tmp_path / "r"), str(Path(__file__).parent)]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
            assert process.stdout is not None
            for _ in range(lines):
                acknowledged.add(process.stdout.readline().strip())
            process.send_signal(signal.SIGKILL)
            acknowledged |= {line.strip() for line in process.stdout if line.endswith("\n")}
        assert acknowledged <= {v.shape_id for v in load_run(tmp_path / "r").verdicts}
    assert len(acknowledged) >= 21


def test_artefacts_are_kept_by_hash(tmp_path: Path) -> None:
    with open_run(tmp_path / "r", manifest()) as run:
        one = save_artefact(run, name="k.cubin", kind="cubin", data=b"\x7fELF")
        assert save_artefact(run, name="k2.cubin", kind="cubin", data=b"\x7fELF").sha256 == one.sha256
    assert [f.name for f in (tmp_path / "r" / "artefacts").iterdir()] == [one.sha256]
    file = tmp_path / "r" / "artefacts" / one.sha256
    assert file.read_bytes() == b"\x7fELF"
    file.write_bytes(b"other")
    with open_run(tmp_path / "r", manifest()) as run:  # a torn one is written again
        save_artefact(run, name="k.cubin", kind="cubin", data=b"\x7fELF")
    assert file.read_bytes() == b"\x7fELF"


def test_what_a_kill_left_among_the_artefacts_is_removed_by_the_next_writer(tmp_path: Path) -> None:
    path = written(tmp_path / "r")
    with open_run(path, manifest()) as run:
        one = save_artefact(run, name="k.cubin", kind="cubin", data=b"\x7fELF")
    left = path / "artefacts" / f".tmp-{'0' * 64}-123"
    left.write_bytes(b"half")
    load_run(path)
    assert left.exists()  # a reader mends nothing
    with open_run(path, manifest()):
        assert [f.name for f in (path / "artefacts").iterdir()] == [one.sha256]


def test_manifest_is_readable_json(tmp_path: Path) -> None:
    assert json.loads((written(tmp_path / "r") / "manifest.json").read_text())["schema"] == 1
    assert os.listdir(tmp_path) == ["r"]
