"""A child finds the language's compiler started: what the zygote compiled for nobody is in its memory, and no file."""

from __future__ import annotations

import pytest

from roofmark import backends
from roofmark.records import Isolation
from roofmark.sandbox import policy
from roofmark.sandbox.child import CandidateEnded
from roofmark.sandbox.process import Sandbox

LOOK = """
import os, sys
found = [name for _, _, names in os.walk(os.environ["HOME"] + "/..") for name in names if name != "candidate.py"]
raise SystemError(f"{MODULE in sys.modules} {len(os.listdir('/proc/self/task'))} {found}")
"""


def seen(level: Isolation, backend: backends.Backend, module: str) -> tuple[str, str]:
    """What a child says of `module`, its threads and files, and what the zygote printed."""
    with Sandbox(level, "cpu", backend) as sandbox:
        sandbox.start()
        printed = sandbox.tail.text()
        source = f"MODULE = {module!r}\n{LOOK}".encode()
        with sandbox.fork({"device": "cpu", "touch_bytes": 0}, source) as child, pytest.raises(CandidateEnded) as ended:
            child.request({"op": "load", "init": {}}, timeout_s=60)
    return str(ended.value), printed


@pytest.mark.parametrize("level", policy.available())
@pytest.mark.parametrize(
    ("name", "module"), [("triton", "triton.compiler.code_generator"), ("numba", "numba.core.typing.mathdecl")]
)
def test_a_child_finds_the_compiler_started(level: Isolation, name: str, module: str) -> None:
    pytest.importorskip(name)
    said, printed = seen(level, backends.load(name), module)
    assert "True 1 []" in said
    assert "Traceback" not in printed
