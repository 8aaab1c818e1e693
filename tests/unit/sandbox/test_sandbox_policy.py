"""What a candidate can see, reach and change under each level, asked from inside."""

from __future__ import annotations

import errno
import fcntl
import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

import roofmark
from referee import CONFIG, LIMITS, Referee, good
from roofmark.errors import IsolationError
from roofmark.evaluate.judge import Judge, Outcome, setup
from roofmark.evaluate.session import Session
from roofmark.records import Isolation, Status
from roofmark.sandbox import policy, system
from roofmark.sandbox.child import CandidateEnded
from roofmark.sandbox.system import descendants, memory_file

INSIDE = (Path(__file__).parent / "inside.py").read_text(encoding="utf-8")
REPOSITORY = Path(__file__).parents[3]
LEVELS = (Isolation.BUBBLEWRAP, Isolation.NATIVE)


def places(folder: Path) -> list[str]:
    """What must not be readable: the package, the tests, homes, the run, the host's secrets."""
    source = str(Path(roofmark.__file__).parent / "operators" / "rms_norm" / "oracle.py")
    return [source, str(REPOSITORY / "tests"), str(folder), "/etc/shadow", "/etc/passwd", "/home", "/root/.ssh", "/run"]


def load(referee: Referee, source: str) -> None:
    """Loads a candidate in a fresh child; how it ends is not of interest."""
    patient = CONFIG.model_copy(update={"first_call_s": 60.0})  # one that looks around walks every folder
    task = referee.task(source.encode(), config=patient)
    with Session(referee.sandbox.fork(setup(task), task.source), task.device, task.operator) as session:
        judge = Judge(task, session, Outcome(), call_s=20)
        with suppress(CandidateEnded):
            judge.load()


@pytest.fixture(scope="module", params=LEVELS, ids=lambda level: level.name.lower())
def level(request: pytest.FixtureRequest) -> Isolation:
    """A level that works here."""
    why = policy.works(request.param)
    if why:
        pytest.skip(f"{request.param.value} does not work here: {why}")
    return Isolation(request.param)


class Looked:
    """What two children in a row found."""

    def __init__(self, level: Isolation, folder: Path) -> None:
        self.level, self.folder = level, folder
        self.referee = Referee(level)
        self.first = self.look()
        self.second = self.look()

    def look(self) -> dict[str, Any]:
        head = f"PLACES = {places(self.folder)!r}\nPID_OUTSIDE = {os.getpid()}\n"
        self.referee.sandbox.tail.data = b""
        load(self.referee, head + INSIDE)
        deadline = time.monotonic() + 10
        while time.monotonic() < deadline:
            for line in self.referee.sandbox.tail.text().splitlines():
                if line.startswith("FOUND ") and line.endswith("}"):
                    return dict(json.loads(line.removeprefix("FOUND ")))
            time.sleep(0.02)
        raise AssertionError(f"nothing was found: {self.referee.sandbox.tail.text()[-500:]}")


@pytest.fixture(scope="module")
def looked(level: Isolation, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Looked]:
    folder = tmp_path_factory.mktemp("run")
    (folder / "manifest.json").write_text("{}")
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(f"\0roofmark-test-{os.getpid()}")
        listener.listen()
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(system, "TAIL_BYTES", 1 << 20)
            one = Looked(level, folder)
        yield one
        one.referee.close()


def test_the_package_can_not_be_imported(looked: Looked) -> None:
    assert "ModuleNotFoundError" in looked.first["roofmark"] or "ImportError" in looked.first["roofmark"]


def test_nothing_of_the_problem_or_the_host_is_readable(looked: Looked) -> None:
    for place in places(looked.folder):
        found = looked.first[f"read {place}"]
        assert found == [] or "Error" in str(found), f"{place}: {found}"


def test_no_other_process_is_in_sight(looked: Looked) -> None:
    assert set(looked.first["pids"]) <= {1, looked.first["pid"]}
    assert "Error" in looked.first["init memory"]
    assert "Error" in looked.first["init environment"]
    assert "ProcessLookupError" in looked.first["kill outside"]


def test_there_is_no_network(looked: Looked) -> None:
    for what in ("inet", "loopback", "abstract"):
        assert "Error" in looked.first[what], looked.first[what]
    interfaces = [line.split(":")[0].strip() for line in looked.first["interfaces"].splitlines()[2:]]
    assert interfaces in ([], ["lo"])


def test_dangerous_calls_are_refused(looked: Looked) -> None:
    assert set(looked.first["refused"].values()) == {errno.EPERM}, looked.first["refused"]


def test_nothing_but_scratch_can_be_written(looked: Looked) -> None:
    scratch = looked.referee.sandbox.policy.scratch
    for place in looked.first["writable"]:
        assert place in ("/dev/shm", scratch) or place.startswith(f"{scratch}/"), place
    assert "Error" in looked.first["chmod outside"]
    assert looked.first["limits"]["RLIMIT_FSIZE"] == LIMITS.scratch_bytes


def test_descriptors_are_harmless(looked: Looked) -> None:
    """Its own channel, the null device or nothing as input, and the pipe of what it prints."""
    fds = looked.first["fds"]
    kinds = {number: target.lstrip("/").split(":")[0].split("/")[0] for number, target in fds.items()}
    assert kinds["1"] == kinds["2"] == "pipe"
    assert all(kind in ("pipe", "socket", "dev", "proc", "memfd") for kind in kinds.values()), fds
    assert sum(kind == "socket" for kind in kinds.values()) == 1, fds


def test_it_has_no_rights(looked: Looked) -> None:
    status = looked.first["status"]
    assert status["Uid"].split() == ["65534"] * 4
    assert status["NoNewPrivs"] == "1"
    assert status["Seccomp"] == "2"
    assert {status[name].strip("0") for name in ("CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb")} == {""}
    limits = looked.first["limits"]
    assert limits["RLIMIT_CORE"] == 0
    assert limits["RLIMIT_AS"] == LIMITS.address_space_bytes


def test_the_environment_says_nothing_of_the_host(looked: Looked) -> None:
    allowed = set(policy.environment(looked.referee.sandbox.policy)) | set(looked.referee.sandbox.backend.environment)
    assert set(looked.first["environment"]) <= allowed | {"LC_CTYPE", "PWD", "KMP_DUPLICATE_LIB_OK", "KMP_INIT_AT_FORK"}


def test_the_next_child_finds_nothing(looked: Looked) -> None:
    assert any(looked.first[key] is None for key in looked.first if key.startswith("leave"))
    assert not [name for name in looked.second["scratch"] if name.endswith("left")]
    assert sorted(looked.first["scratch"]) == sorted(looked.second["scratch"])
    assert looked.first["argv"] == looked.second["argv"]
    assert looked.first["environment"] == looked.second["environment"]


def test_memory_files_keep_their_size() -> None:
    fd = memory_file("test", 4096)
    try:
        for size in (0, 8192):
            with pytest.raises(PermissionError):
                os.ftruncate(fd, size)
        with pytest.raises(PermissionError):
            fcntl.fcntl(fd, 1033, 0x0008)  # F_ADD_SEALS, F_SEAL_WRITE: a candidate can't make it read-only
    finally:
        os.close(fd)


REFEREE_TO_KILL = """
import sys, time
sys.path.insert(0, {tests!r})
from referee import Referee, good
from roofmark.records import Isolation
from roofmark.evaluate.judge import setup
referee = Referee(Isolation({level!r}))
task = referee.task(good())
child = referee.sandbox.fork(setup(task), task.source)
print(referee.sandbox.process.pid, referee.sandbox.folder, flush=True)
time.sleep(60)
"""


def test_a_killed_referee_leaves_no_process(level: Isolation) -> None:
    text = REFEREE_TO_KILL.format(tests=str(REPOSITORY / "tests"), level=level.value)
    with subprocess.Popen([sys.executable, "-c", text], stdout=subprocess.PIPE, text=True) as one:
        assert one.stdout is not None
        pid = int(one.stdout.readline().split()[0])
        below = descendants(pid)
        assert len(below) > 1
        one.send_signal(signal.SIGKILL)
    deadline = time.monotonic() + 10
    while time.monotonic() < deadline and any(map(alive, below)):
        time.sleep(0.05)
    assert not list(filter(alive, below))


def alive(pid: int) -> bool:
    """Whether a process is there and no zombie."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] not in "ZX"
    except (FileNotFoundError, ProcessLookupError):
        return False


def test_it_refuses_where_no_level_works(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(policy.platform, "machine", lambda: "riscv64")
    assert policy.available() == ()
    with pytest.raises(IsolationError, match="can't be isolated"):
        policy.choose(allow_unsafe=False)
    assert policy.choose(allow_unsafe=True) is Isolation.UNSAFE


def test_without_isolation_a_candidate_is_still_judged_in_another_process() -> None:
    referee = Referee(Isolation.UNSAFE)
    try:
        outcome = referee.judge(referee.task(good())).outcome
        assert outcome.status in (Status.OK, Status.UNSTABLE), outcome.message
    finally:
        referee.close()
