"""What the command's words become: whatever is wrong is one line that says what and what to do."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from roofmark import backends, operators
from roofmark.errors import RoofmarkError, UserError
from roofmark.evaluate.config import Config
from roofmark.evaluate.request import (
    MAX_CANDIDATE_BYTES,
    NOOP,
    Request,
    choose_backend,
    choose_device,
    choose_shapes,
    manifest_of,
    read_candidate,
    sizes_for,
)
from roofmark.records import Isolation
from roofmark.releases.sets import resolve

OPERATOR = operators.load("rms_norm")


@pytest.fixture
def bad(tmp_path: Path) -> dict[str, str]:
    """Files that are no candidate."""
    os.mkfifo(tmp_path / "fifo.py")
    (tmp_path / "junk.py").write_bytes(bytes(range(256)))
    (tmp_path / "nul.py").write_bytes(b"x = 1\0")
    (tmp_path / "huge.py").write_bytes(b"#" * (MAX_CANDIDATE_BYTES + 1))
    (tmp_path / "link.py").symlink_to(tmp_path / "link.py")
    names = ("missing", "fifo", "junk", "nul", "huge", "link")
    found = {name: str(tmp_path / f"{name}.py") for name in names}
    return {**found, "folder": str(tmp_path), "device": "/dev/zero", "no name": "a\0b", "long": "x" * 5000}


@pytest.mark.parametrize(
    "what", ["missing", "fifo", "junk", "nul", "huge", "link", "folder", "device", "no name", "long"]
)
def test_what_is_no_candidate_is_refused_in_one_line(what: str, bad: dict[str, str]) -> None:
    with pytest.raises(UserError) as caught:
        read_candidate(bad[what], OPERATOR)
    assert "\n" not in str(caught.value)
    assert caught.value.hint


def test_an_empty_file_is_a_candidate_that_will_fail(tmp_path: Path) -> None:
    (tmp_path / "empty.py").write_bytes(b"")
    assert read_candidate(str(tmp_path / "empty.py"), OPERATOR).source == b""


def test_two_candidates_are_built_in() -> None:
    assert read_candidate("oracle", OPERATOR).source == OPERATOR.reference_text().encode()
    assert read_candidate("noop", OPERATOR).source == NOOP.read_bytes()


def test_a_file_of_that_name_comes_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("oracle").write_text("x = 1")
    assert read_candidate("oracle", OPERATOR).source == b"x = 1"


def test_shapes_come_in_the_operator_s_order() -> None:
    assert [s.shape_id for s in choose_shapes(OPERATOR, " 3,0, 3")] == ["0", "3"]
    assert choose_shapes(OPERATOR, None) == OPERATOR.shapes


@pytest.mark.parametrize("ids", ["", ",", "0,", "99999", "0,x", "-1", "0 1"])
def test_unknown_shapes_are_refused(ids: str) -> None:
    with pytest.raises(UserError):
        choose_shapes(OPERATOR, ids)


@pytest.mark.parametrize("name", ["tpu", "", "CPU", "cuda:0"])
def test_unknown_devices_are_refused(name: str) -> None:
    with pytest.raises(UserError, match="no device"):
        choose_device(name)


def test_the_cpu_needs_no_torch_to_be_chosen() -> None:
    assert choose_device("cpu") == "cpu"


@pytest.mark.parametrize(("name", "device"), [("no-such", "cpu"), ("triton", "cpu"), ("numba", "cuda")])
def test_backends_that_do_not_fit_are_refused(name: str, device: str) -> None:
    with pytest.raises(RoofmarkError):
        choose_backend(name, read_candidate("oracle", OPERATOR), device)


def test_an_operator_that_is_not_there_is_refused_with_those_that_are() -> None:
    with pytest.raises(UserError, match="rms_norm"):
        operators.load("no_such_operator")


@pytest.mark.parametrize("make", ["missing", "file", "empty"])
def test_releases_that_are_none_are_refused(make: str, tmp_path: Path) -> None:
    place = tmp_path / make
    if make == "file":
        place.write_text("")
    elif make == "empty":
        place.mkdir()
    with pytest.raises(UserError):
        resolve(str(place))


def test_a_stand_in_is_for_the_cpu_and_says_so() -> None:
    shape = next(s for s in operators.load("silu_and_mul").shapes if s.stand_in)
    sizes, stand_in = sizes_for(shape, "cpu")
    assert stand_in
    assert sizes != shape.sizes
    assert sizes_for(shape, "cuda") == (shape.sizes, False)


def test_a_manifest_holds_the_deployed_times_of_the_planned_shapes_alone() -> None:
    request = Request(
        candidate=read_candidate("noop", OPERATOR),
        operator=OPERATOR,
        shapes=choose_shapes(OPERATOR, "3,0"),
        device="cpu",
        backend=backends.load("numba"),
        release="built-in",
        release_root=operators.HERE,
        config=Config.for_device("cpu"),
        isolation=Isolation.NATIVE,
    )
    (plan,) = manifest_of(request, None).plans
    assert [(b.shape_id, b.gpu, b.time_us) for b in plan.baselines] == [("0", "XPU-A", 9.95), ("3", "XPU-A", 32.69)]
