"""A child's hands on its device: shared memory, the gate, the clocks. Loaded by `runner.py` in the sandbox.

Stdlib and torch alone, like the runner. Everything here runs in the candidate's trust domain.
"""

from __future__ import annotations

import ctypes
import mmap
import os
from typing import Any

Message = dict[str, Any]

# words of the shared page, each a uint32 that holds the number of the call it speaks of
READY, STARTED, ENQUEUED, GATE, ANSWERED = range(5)
PAGE_BYTES = 4096
SMALL_BYTES, SMALL_BLOCKS = 1 << 20, 1024  # poisoned for a small output; both bound the time it takes


class CpuSide:
    """A child's hands on the CPU."""

    def __init__(self, torch: Any) -> None:
        self.torch = torch
        self.last: Message = {}

    def touch(self, nbytes: int) -> None:
        """Touches memory that the allocator keeps, so that no candidate pays for fresh pages."""
        if nbytes:
            self.torch.zeros(nbytes, dtype=self.torch.uint8).add_(1)

    def map(self, fd: int, spec: Message) -> Any:
        """A maker of fresh tensors over one shared allocation."""
        torch = self.torch
        dtype = getattr(torch, spec["dtype"])
        size = spec["nbytes"]
        memory = mmap.mmap(fd, size) if size else None
        os.close(fd)
        if memory is None:
            return lambda: torch.empty(spec["shape"], dtype=dtype)
        return lambda: torch.frombuffer(memory, dtype=torch.uint8).view(dtype).view(spec["shape"])

    def room(self, spec: Message) -> Any:
        """A maker of tensors like an output. The referee reads what a forward returned where it lies."""
        return lambda: self.torch.empty(spec["shape"], dtype=getattr(self.torch, spec["dtype"]))

    def poison(self, nbytes: int) -> None:
        """Fills memory of an output's size with NaN patterns and frees it: as many blocks as the free list may hold
        others of, since the allocator takes the best fit and any Python object may take one first."""
        count = min(SMALL_BLOCKS, SMALL_BYTES // max(nbytes, 1)) or 1
        _ = [self.torch.empty(nbytes, dtype=self.torch.uint8).fill_(0xFF) for _ in range(count)]

    def run(self, model: Any, inputs: list[Any], words: Any, seq: int, clock_ns: Any) -> Any:
        """What one forward returns; its time is kept. There is no gate on a CPU: the go is all."""
        start = clock_ns()
        result = model(*inputs)
        self.last = {"us": (clock_ns() - start) / 1e3}
        return result

    def deliver(self, results: list[Any], outputs: list[Any]) -> None:
        """Does nothing: the referee reads the outputs."""

    def join(self) -> None:
        """Returns at once: a forward on the CPU is done when it returns."""

    def times(self) -> Message:
        """The clocks of the last forward, in µs."""
        return self.last


class CudaSide:
    """A child's hands on an NVIDIA GPU."""

    POSIX_FD, PINNED, ON_DEVICE, READ_WRITE, DEVICE_MAP, GEQ = 1, 1, 1, 3, 2, 0

    def __init__(self, torch: Any, page: mmap.mmap) -> None:
        self.torch = torch
        torch.cuda.init()
        torch.zeros(1, device="cuda")
        self.synchronize: Any = torch.cuda.synchronize
        self.stream = torch.cuda.current_stream
        self.copy = torch.Tensor.copy_
        self.driver = ctypes.CDLL("libcuda.so.1")
        self.page_address = ctypes.addressof(ctypes.c_char.from_buffer(page))
        self.check(self.driver.cuMemHostRegister_v2(ctypes.c_void_p(self.page_address), PAGE_BYTES, 2))
        pointer = ctypes.c_uint64()
        self.check(
            self.driver.cuMemHostGetDevicePointer_v2(ctypes.byref(pointer), ctypes.c_void_p(self.page_address), 0)
        )
        self.gate = pointer.value + 4 * GATE
        self.start = torch.cuda.Event(enable_timing=True)
        self.end = torch.cuda.Event(enable_timing=True)
        self.record: Any = torch.cuda.Event.record
        self.elapsed: Any = torch.cuda.Event.elapsed_time
        self.enqueued: Any = None
        self.last: Message = {}

    def check(self, code: int) -> None:
        """Raises where the driver reports an error."""
        if code:
            raise RuntimeError(f"CUDA driver error {code}")

    def touch(self, nbytes: int) -> None:
        """Lets the caching allocator hold memory of the sizes that a forward will want."""
        if nbytes:
            self.torch.empty(nbytes, dtype=self.torch.uint8, device="cuda").fill_(0xFF)
        self.synchronize()

    def map(self, fd: int, spec: Message) -> Any:
        """A maker of fresh tensors over one shared allocation."""
        torch, driver = self.torch, self.driver
        dtype = getattr(torch, spec["dtype"])
        if not spec["nbytes"]:
            os.close(fd)
            return lambda: torch.empty(spec["shape"], dtype=dtype, device="cuda")
        handle, address = ctypes.c_uint64(), ctypes.c_uint64()
        mapped = ctypes.c_size_t(spec["mapped_bytes"])
        self.check(driver.cuMemImportFromShareableHandle(ctypes.byref(handle), ctypes.c_void_p(fd), self.POSIX_FD))
        os.close(fd)
        self.check(driver.cuMemAddressReserve(ctypes.byref(address), mapped, ctypes.c_size_t(0), None, 0))
        self.check(driver.cuMemMap(address, mapped, ctypes.c_size_t(0), handle, 0))
        access = (ctypes.c_int * 3)(self.ON_DEVICE, self.torch.cuda.current_device(), self.READ_WRITE)
        self.check(driver.cuMemSetAccess(address, mapped, access, ctypes.c_size_t(1)))
        memory = CudaMemory(address.value, spec["nbytes"])
        return lambda: torch.as_tensor(memory, device="cuda").view(dtype).view(spec["shape"])

    def poison(self, nbytes: int) -> None:
        """Fills memory of an output's size with NaN patterns and frees it."""
        self.torch.empty(nbytes, dtype=self.torch.uint8, device="cuda").fill_(0xFF)
        self.synchronize()

    def run(self, model: Any, inputs: list[Any], words: Any, seq: int, clock_ns: Any) -> Any:
        """What one forward returns, enqueued behind a stream that waits for the gate."""
        stream = self.stream()
        start = clock_ns()
        self.check(
            self.driver.cuStreamWaitValue32_v2(
                ctypes.c_void_p(stream.cuda_stream), ctypes.c_uint64(self.gate), seq, self.GEQ
            )
        )
        self.record(self.start, stream)
        words[STARTED] = seq
        result = model(*inputs)
        self.record(self.end, stream)
        if words[GATE] == seq:  # the gate stands open: the host's time counts, to the end of the device's work
            self.synchronize()
        self.last = {"host_us": (clock_ns() - start) / 1e3}
        self.enqueued = lambda: words.__setitem__(ENQUEUED, seq)
        return result

    def deliver(self, results: list[Any], outputs: list[Any]) -> None:
        """Enqueues the copy of the outputs into the shared allocations, if every one is what was asked for."""
        targets = [view() for view in outputs]
        if len(results) == len(targets) and all(map(self.fits, results, targets)):
            for result, target in zip(results, targets, strict=True):
                self.copy(target, result)

    def fits(self, result: Any, target: Any) -> bool:
        """Whether `result` can be handed over as it is."""
        return (
            isinstance(result, self.torch.Tensor)
            and result.dtype == target.dtype
            and result.shape == target.shape
            and result.device.type == target.device.type
            and result.layout == self.torch.strided
        )

    def join(self) -> None:
        """Tells the referee that all is enqueued, and waits for every stream of the device."""
        self.enqueued()
        self.synchronize()

    def times(self) -> Message:
        """The clocks of the last forward, in µs."""
        self.last["us"] = self.elapsed(self.start, self.end) * 1e3
        return self.last


class CudaMemory:
    """An address and a size, as torch takes them over without a copy."""

    def __init__(self, address: int, nbytes: int) -> None:
        self.__cuda_array_interface__ = {
            "shape": (nbytes,),
            "typestr": "|u1",
            "data": (address, False),
            "version": 3,
        }
