"""Memory that the referee shares with a runner, each tensor in an allocation of its own.

`CpuDevice` and `CudaDevice` are the referee's hands: they share, flush and synchronise. Expected values
never lie in a shared allocation.
"""

from __future__ import annotations

import math
import mmap
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import torch
from torch import Tensor

from roofmark.errors import DeviceError
from roofmark.sandbox.system import memory_file


def spec(shape: Sequence[int], dtype: torch.dtype, mapped_bytes: int = 0) -> dict[str, Any]:
    """What the runner needs to know of a tensor."""
    name = str(dtype).removeprefix("torch.")
    nbytes = math.prod(shape) * dtype.itemsize
    return {"shape": list(shape), "dtype": name, "nbytes": nbytes, "mapped_bytes": mapped_bytes}


@dataclass(frozen=True)
class Shared:
    """One shared allocation: its descriptor to hand over, and the referee's own view of it."""

    fd: int
    view: Tensor
    mapped_bytes: int
    release: Callable[[], None] = field(repr=False)

    def spec(self) -> dict[str, Any]:
        """What the runner needs to map it."""
        return spec(self.view.shape, self.view.dtype, self.mapped_bytes)

    def close(self) -> None:
        """Lets go of the descriptor and the mapping."""
        os.close(self.fd)
        self.release()


class Device(Protocol):
    """What the referee does on a device."""

    name: str
    spins: bool
    shares_outputs: bool

    def share(self, shape: tuple[int, ...], dtype: torch.dtype) -> Shared:
        """A shared allocation of that size."""

    def flush(self) -> None:
        """Leaves none of the inputs in a cache, and no dirty line in any."""

    def synchronize(self) -> None:
        """Waits for all that was asked of the device."""


class CpuDevice:
    """The CPU: shared memory files, and a flush by reading twice the last-level cache."""

    name = "cpu"
    spins = False  # a spinning referee would take a core from the candidate
    shares_outputs = False  # they are read from the stopped runner, where they lie

    def __init__(self, cache_bytes: int) -> None:
        self._sweep = torch.ones(2 * cache_bytes // 8, dtype=torch.int64)

    def share(self, shape: tuple[int, ...], dtype: torch.dtype) -> Shared:
        """A shared allocation of that size."""
        nbytes = math.prod(shape) * dtype.itemsize
        fd = memory_file("tensor", nbytes)
        if not nbytes:
            return Shared(fd, torch.empty(shape, dtype=dtype), 0, lambda: None)
        memory = mmap.mmap(fd, nbytes)
        view = torch.frombuffer(memory, dtype=torch.uint8).view(dtype).view(shape)
        return Shared(fd, view, nbytes, lambda: None)

    def flush(self) -> None:
        """Leaves none of the inputs in a cache, and no dirty line in any."""
        self._sweep.sum()

    def synchronize(self) -> None:
        """Returns at once: work on the CPU is done when it returns."""


class CudaDevice:
    """An NVIDIA GPU: allocations of their own through the driver, handed over as descriptors."""

    name = "cuda"
    spins = True
    shares_outputs = True

    def __init__(self) -> None:
        try:
            from cuda.bindings import driver
        except ImportError as error:
            raise DeviceError("cuda-bindings is not installed", hint="pip install cuda-python") from error
        if not torch.cuda.is_available():
            raise DeviceError("torch sees no CUDA device", hint="use --device cpu")
        torch.cuda.init()  # type: ignore[no-untyped-call]
        self._driver = driver
        properties = torch.cuda.get_device_properties(0)
        words = 2 * properties.L2_cache_size // 4 + (1 << 20)
        self._sweep = torch.ones(words, dtype=torch.int32, device="cuda")
        self._sink = torch.zeros((), dtype=torch.int64, device="cuda")
        prop = driver.CUmemAllocationProp()
        prop.type = driver.CUmemAllocationType.CU_MEM_ALLOCATION_TYPE_PINNED
        prop.location.type = driver.CUmemLocationType.CU_MEM_LOCATION_TYPE_DEVICE
        prop.location.id = torch.cuda.current_device()
        prop.requestedHandleTypes = driver.CUmemAllocationHandleType.CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR
        self._prop = prop
        flag = driver.CUmemAllocationGranularity_flags.CU_MEM_ALLOC_GRANULARITY_MINIMUM
        self._granularity = int(self._call(driver.cuMemGetAllocationGranularity(prop, flag)))

    def _call(self, result: tuple[Any, ...]) -> Any:
        code, *values = result
        if int(code):
            raise DeviceError(f"CUDA driver: {code}")
        return values[0] if values else None

    def share(self, shape: tuple[int, ...], dtype: torch.dtype) -> Shared:
        """A shared allocation of that size, mapped here and exported as a descriptor."""
        driver = self._driver
        nbytes = math.prod(shape) * dtype.itemsize
        if not nbytes:
            return Shared(os.dup(0), torch.empty(shape, dtype=dtype, device="cuda"), 0, lambda: None)
        size = -(-nbytes // self._granularity) * self._granularity
        handle = self._call(driver.cuMemCreate(size, self._prop, 0))
        kind = driver.CUmemAllocationHandleType.CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR
        fd = int(self._call(driver.cuMemExportToShareableHandle(handle, kind, 0)))
        address = self._call(driver.cuMemAddressReserve(size, 0, 0, 0))
        self._call(driver.cuMemMap(address, size, 0, handle, 0))
        access = driver.CUmemAccessDesc()
        access.location = self._prop.location
        access.flags = driver.CUmemAccess_flags.CU_MEM_ACCESS_FLAGS_PROT_READWRITE
        self._call(driver.cuMemSetAccess(address, size, [access], 1))
        view = torch.as_tensor(_Memory(int(address), nbytes), device="cuda").view(dtype).view(shape)

        def release() -> None:
            torch.cuda.synchronize()
            self._call(driver.cuMemUnmap(address, size))
            self._call(driver.cuMemAddressFree(address, size))
            self._call(driver.cuMemRelease(handle))

        return Shared(fd, view, size, release)

    def flush(self) -> None:
        """Leaves none of the inputs in a cache, and no dirty line in any."""
        torch.sum(self._sweep, dim=0, out=self._sink)

    def synchronize(self) -> None:
        """Waits for all that was asked of the device."""
        torch.cuda.synchronize()


class _Memory:
    def __init__(self, address: int, nbytes: int) -> None:
        self.__cuda_array_interface__ = {
            "shape": (nbytes,), "typestr": "|u1", "data": (address, False), "version": 3,
        }  # fmt: skip
