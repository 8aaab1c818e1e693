"""Odd surroundings: closed and full streams, no home, a bare locale, narrow and absent terminals, full disks."""

from __future__ import annotations

import json
import os
import pty
import subprocess
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from cli_driver import NUMBA, REPOSITORY, ROOFMARK, SMALL, Judged, data, drive, environment, one_line


def shell(script: str, cwd: Path, **env: str | None) -> subprocess.CompletedProcess[str]:
    """A line of shell in which $R is the command."""
    return subprocess.run(
        ["bash", "-o", "pipefail", "-c", script], cwd=cwd, env=environment(R=ROOFMARK, **env), capture_output=True,
        text=True, timeout=120, check=False, stdin=subprocess.DEVNULL,
    )  # fmt: skip


@pytest.mark.parametrize("command", ["score run", "hardware list --json -"])
def test_a_reader_that_goes_away(judged: Judged, command: str) -> None:
    # more than a pipe holds, so that somebody has to notice
    done = shell(f"for i in 1 2 3; do $R {command}; echo $? >&2; done | head -c 1 >/dev/null", judged.cwd)
    assert set(done.stderr.split()) <= {"0", "141"}, done.stderr
    assert done.stderr.split()[-1] == "141"


def test_closed_streams(judged: Judged) -> None:
    for closed in ("<&-", ">&-", "2>&-", "<&- >&- 2>&-"):
        done = shell(f"$R score run {closed}", judged.cwd)
        assert (done.returncode, done.stderr) == (0, ""), closed
        assert bool(done.stdout) == (">&- " not in f"{closed} ".replace("2>&-", ""))
    refusal = shell("$R score nowhere >&- <&-", judged.cwd)
    assert one_line(refusal)
    assert shell("$R score nowhere 2>&-", judged.cwd).returncode == 2


def test_no_file_becomes_a_standard_stream(judged: Judged, tmp_path: Path) -> None:
    done = shell("$R score run --json out.json <&- >&- 2>&-; echo $?", judged.cwd.parent, HOME=str(tmp_path))
    assert done.stdout == "2\n"  # no run here: and nobody to be told
    target = tmp_path / "out.json"
    done = shell(f"$R score run --json {target} <&- >&- 2>&-; echo $?", judged.cwd)
    assert done.stdout == "0\n"
    assert json.loads(target.read_text())[0]["run"] == "run"


def test_a_full_stdout(judged: Judged) -> None:
    for command in ("hardware list", "hardware list --json -", "score run"):
        done = shell(f"$R {command} >/dev/full", judged.cwd)
        assert one_line(done) == "can't write to standard output: No space left on device"


ENVIRONMENTS: dict[str, dict[str, str | None]] = {
    "no home": {"HOME": None, "USER": None, "LOGNAME": None},
    "no terminal": {"TERM": None},
    "dumb terminal": {"TERM": "dumb"},
    "C": {"LANG": "C", "LC_ALL": "C"},
    "POSIX, no UTF-8": {"LC_ALL": "POSIX", "PYTHONCOERCECLOCALE": "0", "PYTHONUTF8": "0"},
    "ASCII": {"PYTHONIOENCODING": "ascii"},
    "Latin": {"PYTHONIOENCODING": "latin-1"},
    "40 columns": {"COLUMNS": "40"},
    "0 columns": {"COLUMNS": "0"},
    "no columns": {"COLUMNS": "wide"},
    "colour": {"FORCE_COLOR": "1"},
}


@pytest.fixture(scope="module")
def everywhere(judged: Judged) -> dict[str, list[subprocess.CompletedProcess[str]]]:
    """What `score` prints in each environment: the table, and the records."""

    def one(changes: dict[str, str | None]) -> list[subprocess.CompletedProcess[str]]:
        env = environment(**changes)
        return [drive("score", "run", *more, cwd=judged.cwd, env=env) for more in ((), ("--json", "-"))]

    with ThreadPoolExecutor(os.cpu_count()) as pool:
        return dict(zip(ENVIRONMENTS, pool.map(one, ENVIRONMENTS.values()), strict=True))


@pytest.mark.parametrize("name", ENVIRONMENTS)
def test_environments(judged: Judged, everywhere: dict[str, list[subprocess.CompletedProcess[str]]], name: str) -> None:
    table, records = everywhere[name]
    assert (table.returncode, table.stderr) == (0, "")
    assert "rms_norm" in table.stdout
    assert "held against" in table.stdout
    assert "…" not in table.stdout
    assert (records.returncode, records.stderr) == (0, "")
    assert data(records)[0]["score"] == judged.result["score"]


def test_no_colour_but_on_a_terminal(judged: Judged) -> None:
    assert "\x1b" not in drive("score", "run", cwd=judged.cwd).stdout
    assert "\x1b" in terminal("score", "run", cwd=judged.cwd)
    plain = terminal("score", "run", cwd=judged.cwd, NO_COLOR="1")
    assert "\x1b[3" not in plain


def terminal(*arguments: str, cwd: Path, **env: str) -> str:
    """What the command prints on a terminal."""
    ours, theirs = pty.openpty()
    process = subprocess.Popen(
        [ROOFMARK, *arguments], cwd=cwd, env=environment(TERM="xterm", COLUMNS="100", **env), stdin=theirs,
        stdout=theirs, stderr=theirs,
    )  # fmt: skip
    os.close(theirs)
    text = b""
    while chunk := read(ours):
        text += chunk
    os.close(ours)
    process.wait(timeout=60)
    return text.decode()


def read(fd: int) -> bytes:
    """The next piece of a terminal's output; empty at its end, which Linux tells as an error."""
    try:
        return os.read(fd, 65536)
    except OSError:
        return b""


def test_a_bar_on_a_terminal_goes_away(tmp_path: Path) -> None:
    text = terminal("hardware", "show", "cpu", cwd=tmp_path)
    assert "calibrating cpu" in text
    assert "FLOP/s" in text.rpartition("calibrating cpu")[2]


def test_a_folder_that_takes_no_runs() -> None:
    if os.access("/sys/runs", os.F_OK):
        pytest.skip("this machine has /sys/runs")
    done = drive("evaluate", NUMBA, "-o", "rms_norm", "--shapes", SMALL, "--device", "cpu", cwd=Path("/sys"))
    assert one_line(done).startswith("can't make the run directory runs")


def test_a_full_disk(tmp_path: Path) -> None:
    (tmp_path / "disk").mkdir()
    script = "mount -t tmpfs -o size=4k none disk && {} evaluate {} -o rms_norm --shapes 41 --device cpu --out disk/run"
    line = script.format(ROOFMARK, NUMBA)
    tried = subprocess.run(["unshare", "-m", "sh", "-c", "mount -t tmpfs -o size=4k none disk"], cwd=tmp_path,
                           capture_output=True, check=False)  # fmt: skip
    if tried.returncode:
        pytest.skip("no file system can be mounted here")
    done = subprocess.run(["unshare", "-m", "sh", "-c", line], cwd=tmp_path, env=environment(), capture_output=True,
                          text=True, timeout=120, check=False)  # fmt: skip
    assert done.returncode == 2
    assert done.stdout == ""
    assert "No space left on device" in done.stderr.splitlines()[-1]
    assert all(text.startswith("roofmark: ") for text in done.stderr.splitlines())


def test_records_go_where_a_link_points(judged: Judged, tmp_path: Path) -> None:
    (tmp_path / "real.json").write_text("old")
    (tmp_path / "real.json").chmod(0o640)
    (tmp_path / "link.json").symlink_to("real.json")
    done = drive("score", judged.cwd / "run", "--json", "link.json", cwd=tmp_path)
    assert done.returncode == 0
    assert "held against" in done.stdout
    assert (tmp_path / "link.json").is_symlink()
    assert json.loads((tmp_path / "real.json").read_text())[0]["score"]["operators"]
    assert (tmp_path / "real.json").stat().st_mode & 0o777 == 0o640
    assert sorted(p.name for p in tmp_path.iterdir()) == ["link.json", "real.json"]


def test_help_and_imports_are_light(tmp_path: Path) -> None:
    code = (
        "import resource, sys\n"
        "from roofmark.cli import main\n"
        "sys.argv = ['roofmark', *sys.argv[1:]]\n"
        "try:\n    main()\n"
        "except SystemExit:\n    pass\n"
        "heavy = {'torch', 'numpy', 'numba', 'triton'} & set(sys.modules)\n"
        "used = resource.getrusage(resource.RUSAGE_SELF)\n"
        "print(sorted(heavy), used.ru_utime + used.ru_stime, file=sys.stderr)\n"
    )
    python = str(Path(ROOFMARK).with_name("python"))
    for arguments in (["--help"], ["--version"], ["evaluate", "-h"], ["operators", "show", "rms_norm"],
                      ["hardware", "show", "h200"], ["runs"],
                      ["evaluate", "nowhere.py", "-o", "rms_norm"]):  # fmt: skip
        lines, seconds = [], []
        for _ in range(3 if arguments == ["--help"] else 1):
            done = subprocess.run([python, "-c", code, *arguments], cwd=tmp_path, env=environment(),
                                  capture_output=True, text=True, timeout=60, check=False)  # fmt: skip
            heavy, _, used = done.stderr.splitlines()[-1].rpartition(" ")
            lines.append(heavy)
            seconds.append(float(used))
        assert set(lines) == {"[]"}, (arguments, lines)
        assert arguments != ["--help"] or min(seconds) < 0.3


def test_score_needs_no_torch(judged: Judged) -> None:
    code = (
        "import sys\n"
        "sys.modules.update(dict.fromkeys(['torch', 'numpy', 'numba', 'triton']))  # importing one raises\n"
        "sys.argv = ['roofmark', 'score', 'run', '--json', '-']\n"
        "from roofmark.cli import main\n"
        "main()\n"
    )
    python = str(Path(ROOFMARK).with_name("python"))
    done = subprocess.run([python, "-c", code], cwd=judged.cwd, env=environment(), capture_output=True, text=True,
                          timeout=60, check=False)  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)[0]["score"] == judged.result["score"]


def test_the_generated_page_is_the_code_s(tmp_path: Path) -> None:
    page = REPOSITORY / "docs" / "cli.md"
    done = drive("evaluate", "--help", cwd=tmp_path, env=environment(COLUMNS="80"))
    assert page.is_file()
    assert done.stdout.strip() in page.read_text(encoding="utf-8")
