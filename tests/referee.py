"""The referee in small, for the tests: the real sandbox, protocol and judge on a small shape with few calls."""

from __future__ import annotations

import os
import shutil
from dataclasses import dataclass
from typing import Any

from roofmark import backends, operators
from roofmark.evaluate import Config
from roofmark.evaluate.compile import Compilation, compile_shape
from roofmark.evaluate.judge import Outcome, Task, judge
from roofmark.evaluate.seeds import Seeds
from roofmark.operators import Operator
from roofmark.records import Isolation, Status
from roofmark.sandbox.cache import clear
from roofmark.sandbox.policy import Limits
from roofmark.sandbox.process import Sandbox
from roofmark.sandbox.shared import CpuDevice
from roofmark.sandbox.system import descendants

# every figure that decides is the real one; only how often and how long it goes on is small
CONFIG = Config.for_device("cpu").model_copy(
    update={
        "seeds": 2, "null_calls": 3, "min_calls": 7, "max_calls": 13, "timing_s": 2.0, "host_calls": 1,
        "target_half_width": 1e9, "accepted_half_width": 1e9, "processes": 2, "first_call_s": 4.0, "call_s": 2.5,
    }
)  # fmt: skip
GOOD_CONFIG = CONFIG.model_copy(update={"seeds": 1, "max_calls": 7})
LIMITS = Limits(memory_bytes=1 << 30, scratch_bytes=1 << 26)
CACHE_BYTES = 1 << 20
SMALL: dict[str, dict[str, Any]] = {
    "rms_norm": {"token_count": 67, "hidden_size": 128},
    "silu_and_mul": {"shape": [37, 256]},
    "paged_attention_decode": {"num_seqs": 5, "ctx_len": 43, "num_query_heads": 4, "num_kv_heads": 2, "head_size": 64},
    "moe_topk_gating_softmax": {"token_count": 37},
}


@dataclass(frozen=True)
class Judged:
    """What the gates said, what the candidate printed, and what gate 1 found where it was asked."""

    outcome: Outcome
    said: str
    compilation: Compilation | None = None


class Referee:
    """A sandbox that judges candidate after candidate, as a run does."""

    def __init__(self, isolation: Isolation, limits: Limits = LIMITS) -> None:
        self.isolation, self.limits = isolation, limits
        self.device = CpuDevice(CACHE_BYTES)
        self.sandbox = Sandbox(isolation, "cpu", backends.load("numba"), limits=limits)

    def close(self) -> None:
        """Ends the sandbox."""
        self.sandbox.close()

    def task(self, source: bytes, operator: str | Operator = "rms_norm", config: Config = CONFIG, **dims: Any) -> Task:
        """A candidate on a small shape of an operator."""
        loaded = operators.load(operator) if isinstance(operator, str) else operator
        first = loaded.shapes[0]
        shape = first.model_copy(update={"dims": {**first.dims, **SMALL[loaded.name], **dims}})
        return Task("candidate", source, loaded, shape, shape.sizes, self.device, config, Seeds(os.urandom(32)))

    def judge(self, task: Task, *, limit_us: float | None = None, t_sol_us: float = 0.01) -> Judged:
        """Gates 2 and 3."""
        self.sandbox.tail.data = b""
        outcome = judge(self.sandbox, task, limit_us=limit_us, t_sol_us=lambda again: t_sol_us)
        return Judged(outcome, self.sandbox.tail.text())

    def judge_all(self, task: Task) -> Judged:
        """All three gates: the compile step in a sandbox of its own, its cache handed over."""
        with Sandbox(self.isolation, "cpu", self.sandbox.backend, twin=self.sandbox, limits=self.limits) as compiler:
            compilation = compile_shape(compiler, task)
            compiler.stop()
            compiled = compiler.tail.text()
        shutil.rmtree(self.sandbox.cache_dir / "artefacts", ignore_errors=True)
        if compilation.status is not Status.OK:
            return Judged(Outcome(compilation.status, message=compilation.message), compiled, compilation)
        judged = self.judge(task)
        clear(self.sandbox.cache_dir)
        return Judged(judged.outcome, compiled + judged.said, compilation)

    def leftovers(self) -> list[int]:
        """Processes of the sandbox that should not be there between two candidates."""
        process = self.sandbox.process
        if process is None or process.poll() is not None:
            return []
        return sorted(set(descendants(process.pid)) - self.sandbox.own_pids)


def good(operator: str = "rms_norm") -> bytes:
    """A candidate that is right: the reference's text."""
    return operators.load(operator).reference_text().encode()
