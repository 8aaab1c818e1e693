"""Calls of a forward inside a sandbox, by the protocol: go, gate, answer, snapshot."""

from __future__ import annotations

import secrets
import time
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from roofmark.operators import Operator, Sizes
from roofmark.records import Status
from roofmark.sandbox.child import CandidateEnded, Child
from roofmark.sandbox.runner_devices import ANSWERED, ENQUEUED, GATE, READY, STARTED
from roofmark.sandbox.shared import Device, Shared, spec
from roofmark.sandbox.system import plain

HOST_BOUND_S = 1e-3


@dataclass(frozen=True)
class Case:
    """Sizes, shared inputs, and outputs: shared too, or read from the runner. `landing` is the referee's alone."""

    token: str
    sizes: Sizes
    inputs: tuple[Shared, ...]
    outputs: tuple[Shared, ...]
    landing: dict[str, Tensor]
    input_names: tuple[str, ...]


@dataclass(frozen=True)
class Call:
    """What came of one call. Times are µs; `outputs` are the referee's own copies, overwritten by the next call."""

    us: float
    host_us: float
    referee_us: float
    host_bound: bool
    kinds: tuple[dict[str, Any], ...]
    outputs: dict[str, Tensor]


class Session:
    """A child with its cases. Closing it ends the child and frees what was shared."""

    def __init__(self, child: Child, device: Device, operator: Operator) -> None:
        self.child = child
        self.device = device
        self.operator = operator
        self.cases: dict[str, Case] = {}
        self.sequence = 0

    def __enter__(self) -> Session:
        return self

    def __exit__(self, *_: object) -> None:
        with ExitStack() as stack:  # whatever fails, the rest is let go too
            for case in self.cases.values():
                for shared in (*case.inputs, *case.outputs):
                    stack.callback(shared.close)
            self.child.close()

    def bind(self, name: str, sizes: Sizes, inputs: dict[str, Tensor], *, timeout_s: float) -> Case:
        """Shares inputs and outputs of a case with the child; the contents stay behind."""
        landing = {
            o.name: torch.empty(o.shape, dtype=getattr(torch, o.dtype), device=self.device.name)
            for o in self.operator.outputs(sizes, self.device.name)
        }
        shared_in = tuple(self.device.share(tuple(t.shape), t.dtype) for t in inputs.values())
        shared_out: tuple[Shared, ...] = ()
        if self.device.shares_outputs:
            shared_out = tuple(self.device.share(tuple(t.shape), t.dtype) for t in landing.values())
        token = secrets.token_hex(4)  # a name would tell the candidate which gate it is in
        case = Case(token, sizes, shared_in, shared_out, landing, tuple(inputs))
        self.cases[name] = case
        specs = [s.spec() for s in (*shared_in, *shared_out)]
        if not shared_out:
            specs += [spec(t.shape, t.dtype) for t in landing.values()]
        message = {"op": "bind", "case": token, "tensors": specs, "inputs": len(shared_in)}
        fds = tuple(s.fd for s in (*shared_in, *shared_out))
        self.child.request(message, timeout_s=timeout_s, fds=fds)
        return case

    def call(
        self, case: Case, inputs: dict[str, Tensor], *, timeout_s: float, null: bool = False, ungated: bool = False
    ) -> Call:
        """One forward on `inputs`: the child is stopped while they are written, and again at its answer.

        `null` calls nothing. With `ungated` the gate stands open from the start, so that the host's time counts.
        """
        self.sequence += 1
        deadline = time.monotonic() + timeout_s
        message = {"op": "call", "case": case.token, "seq": self.sequence, "null": null}
        nonce = self.child.post(message)
        self._await(READY, nonce, deadline)
        self.child.freeze()
        self._write(case, inputs)
        self.child.must_have_rested()
        start = time.perf_counter_ns()
        if ungated:
            self.child.words[GATE] = self.sequence
        with suppress(OSError):  # a child that is gone is met below
            self.child.channel.send(b"g")
        self.child.thaw()
        host_bound = False
        if self.device.spins and not ungated:
            self._await(STARTED, nonce, deadline)
            host_bound = not self._spin_until(ENQUEUED, time.monotonic() + HOST_BOUND_S)
            start = time.perf_counter_ns()
            self.child.words[GATE] = self.sequence
        self._await_answer(deadline)
        end = time.perf_counter_ns()
        if time.monotonic() > deadline and not self.child.poll(0):
            self.child.kill()  # an answer that comes yet would be to outputs that were looked at before
            raise CandidateEnded(Status.TIMEOUT, f"no answer within {timeout_s:.3g} s")
        self.child.freeze()
        answer = self._take(case, nonce, deadline)
        return Call(
            us=number(answer, "us"), host_us=number(answer, "host_us"), referee_us=(end - start) / 1e3,
            host_bound=host_bound, kinds=kinds_of(answer), outputs=case.landing,
        )  # fmt: skip

    def _take(self, case: Case, nonce: str, deadline: float) -> dict[str, Any]:
        """The answer, with the outputs taken over while the candidate stands still."""
        if not self.device.shares_outputs:
            answer = self.child.answer(nonce, timeout_s=0.0)  # it has come
            addresses = [kind["address"] for kind in kinds_of(answer)[: len(case.landing)]]
            addresses += [0] * (len(case.landing) - len(addresses))
            for tensor, address in zip(case.landing.values(), addresses, strict=True):
                if self.child.read(address, tensor) < tensor.nbytes:
                    poison(tensor)
            self.child.must_have_rested()
            return answer
        for tensor, shared in zip(case.landing.values(), case.outputs, strict=True):
            tensor.copy_(shared.view)
        self.device.synchronize()
        self.child.must_have_rested()
        return self.child.answer(nonce, timeout_s=max(deadline - time.monotonic(), 1.0))

    def _write(self, case: Case, inputs: dict[str, Tensor]) -> None:
        """Writes the contents, poisons the outputs, and leaves the cache cold and clean."""
        for shared, tensor in zip(case.inputs, inputs.values(), strict=True):
            shared.view.copy_(tensor)
        for shared in case.outputs:
            poison(shared.view)
        self.device.flush()
        self.device.synchronize()

    def _await_answer(self, deadline: float) -> None:
        """Waits for the answer, the end of the child, or the deadline."""
        if not self.device.spins:
            self.child.poll(max(deadline - time.monotonic(), 0.0))
            return
        while not self._spin_until(ANSWERED, time.monotonic() + 0.01):
            if self.child.poll(0) or time.monotonic() > deadline:
                return

    def _await(self, word: int, nonce: str, deadline: float) -> None:
        """Waits until the child has reached `word` of this call, or says why it never will."""
        words = self.child.words
        while words[word] != self.sequence:
            if self.device.spins and self._spin_until(word, time.monotonic() + 1e-3):
                return
            if self.child.poll(0 if self.device.spins else 5e-5) and words[word] != self.sequence:
                self.child.answer(nonce, timeout_s=0.0)
                raise CandidateEnded(Status.RULE_BROKEN, "an answer came before the call was made")
            if time.monotonic() > deadline:
                self.child.kill()
                raise CandidateEnded(Status.TIMEOUT, "not ready for a call in time")

    def _spin_until(self, word: int, until: float) -> bool:
        """Whether the child reached `word` of this call before `until`."""
        words = self.child.words
        while words[word] != self.sequence:
            if time.monotonic() > until:
                return False
        return True


def number(answer: dict[str, Any], key: str) -> float:
    """A number of an answer, NaN where it is none: judged, not trusted."""
    value = answer.get(key)
    if not isinstance(value, (int, float)) or isinstance(value, bool):
        return float("nan")
    try:
        return float(value)
    except OverflowError:
        return float("inf")


def kinds_of(answer: dict[str, Any]) -> tuple[dict[str, Any], ...]:
    """The descriptions of what a forward returned."""
    kinds = answer.get("outputs")
    return tuple(kind_of(k) for k in kinds[:64] if isinstance(k, dict)) if isinstance(kinds, list) else ()


def kind_of(said: dict[str, Any]) -> dict[str, Any]:
    """A description with nothing in it but short plain texts and lists of whole numbers."""
    kind: dict[str, Any] = {key: plain(said.get(key), 160) for key in ("type", "dtype", "device")}
    for key in ("shape", "stride"):
        if isinstance(said.get(key), list):
            kind[key] = [n if type(n) is int and abs(n) < 1 << 63 else -1 for n in said[key][:16]]
    address = said.get("address")
    kind["address"] = address if type(address) is int and 0 < address < 1 << 47 else 0
    return kind


def poison(tensor: Tensor) -> None:
    """Fills a tensor with the pattern that is NaN in its float type and -1 in every integer type."""
    if tensor.numel():
        as_bytes(tensor).fill_(0x80 if tensor.dtype == torch.float8_e4m3fnuz else 0xFF)


def as_bytes(tensor: Tensor) -> Tensor:
    """A contiguous tensor's memory as bytes."""
    return tensor.reshape(-1).view(torch.uint8)
