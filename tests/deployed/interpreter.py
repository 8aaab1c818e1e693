"""Triton's CPU interpreter, repaired: `repair()` once in a process, before any kernel is launched.

As released (3.7 and 3.9) it is silently wrong for bfloat16 and fp8: products, sums and comparisons take the bits for
integers, and what is rounded to them is cut off. Here such numbers are widened to float32 first, and rounded to the
nearest by PyTorch. Kernels are not touched. Autotuned ones run with their first configuration.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from types import ModuleType
from typing import Any

import numpy as np
import torch
import triton
import triton.language as tl
from triton.language.extra import libdevice
from triton.runtime import interpreter
from triton.runtime.jit import KernelInterface

TORCH = {
    tl.bfloat16: torch.bfloat16, tl.float16: torch.float16, tl.float32: torch.float32, tl.float64: torch.float64,
    tl.float8e4nv: torch.float8_e4m3fn, tl.float8e5: torch.float8_e5m2,
}  # fmt: skip
# those that numpy has not: the interpreter holds their bits
SMALL = {tl.bfloat16, tl.float8e4nv, tl.float8e5}
BITWISE = (np.bitwise_and, np.bitwise_or, np.bitwise_xor)
LIBDEVICE = {
    "exp": np.exp, "exp2": np.exp2, "log": np.log, "log2": np.log2, "sqrt": np.sqrt, "tanh": np.tanh, "abs": np.abs,
    "rint": np.rint, "fast_expf": np.exp, "fast_logf": np.log, "div_rn": np.divide, "log1p": np.log1p,
    "fast_dividef": np.divide, "rsqrt": lambda x: 1 / np.sqrt(x), "sin": np.sin, "cos": np.cos, "pow": np.power,
}  # fmt: skip

Handle = interpreter.TensorHandle


def widened(handle: Any) -> Any:
    """A handle's numbers, float32 where numpy lacks their type."""
    kind = handle.dtype.scalar
    return _tensor(handle.data, kind).float().numpy() if kind in SMALL else handle.data


def converted(data: Any, source: Any, target: Any) -> Any:
    """Numbers of one type as those of another, rounded to the nearest."""
    if source == target:
        return data
    made = _tensor(data, source).to(TORCH[target])
    bits = made.view(torch.int16).numpy().view(np.uint16) if target == tl.bfloat16 else made
    if isinstance(bits, torch.Tensor):
        bits = bits.view(torch.uint8).numpy() if target in SMALL else bits.numpy()
    return bits.reshape(data.shape)


def _tensor(data: Any, kind: Any) -> torch.Tensor:
    flat = np.ascontiguousarray(data)
    if kind == tl.bfloat16:
        return torch.from_numpy(flat.view(np.int16)).view(torch.bfloat16)
    return torch.from_numpy(flat.view(np.uint8)).view(TORCH[kind]) if kind in SMALL else torch.from_numpy(flat)


def _rounded(data: Any, kind: Any) -> Any:
    return Handle(converted(np.asarray(data, dtype=np.float32), tl.float32, kind), kind)


def repair() -> None:
    """Repairs the interpreter of this process; again: nothing."""
    builder = interpreter.InterpreterBuilder
    if getattr(builder, "repaired", False):
        return
    builder.repaired = True
    _casts(builder)
    _arithmetic(builder)
    _reductions()
    _arguments()
    _library()
    _grids()
    _masks(builder)
    triton.autotune = first_config


def _casts(builder: Any) -> None:
    cast, narrow = builder.cast_impl, builder.create_fp_to_fp

    def cast_impl(self: Any, source: Any, target_type: Any) -> Any:
        kind, target = source.dtype.scalar, target_type.scalar
        if kind in TORCH and target in TORCH:
            return Handle(converted(source.data, kind, target), target)
        if kind in SMALL:
            source = Handle(widened(source), tl.float32)
        return _rounded(source.data, target) if target in SMALL else cast(self, source, target_type)

    def create_fp_to_fp(self: Any, source: Any, target_type: Any, mode: Any) -> Any:
        kind, target = source.dtype.scalar, target_type.scalar
        if kind in TORCH and target in TORCH and mode in (None, interpreter._ir.ROUNDING_MODE.RTNE):
            return Handle(converted(source.data, kind, target), target)
        return narrow(self, source, target_type, mode)

    builder.cast_impl, builder.create_fp_to_fp = cast_impl, create_fp_to_fp


def _arithmetic(builder: Any) -> None:
    binary, unary, fma, dot = builder.binary_op, builder.unary_op, builder.create_fma, builder.create_dot

    def binary_op(self: Any, left: Any, right: Any, op: Any) -> Any:
        kind = left.dtype.scalar
        if kind not in SMALL or right.dtype.scalar != kind or op in BITWISE:
            return binary(self, left, right, op)
        out = op(widened(left), widened(right))
        return Handle(out, tl.int1) if out.dtype == np.bool_ else _rounded(out, kind)

    def unary_op(self: Any, one: Any, op: Any) -> Any:
        kind = one.dtype.scalar
        return _rounded(op(widened(one)), kind) if kind in SMALL else unary(self, one, op)

    def create_fma(self: Any, x: Any, y: Any, z: Any) -> Any:
        kind = z.dtype.scalar
        if kind not in SMALL:
            return fma(self, x, y, z)
        return _rounded(widened(x) * widened(y) + widened(z), kind)

    def create_dot(self: Any, a: Any, b: Any, start: Any, *rest: Any) -> Any:
        left, right = widened(a), widened(b)
        if left.dtype in (np.float16, np.float32) and start.data.dtype == np.float32:  # numpy's own product is slow
            made = np.matmul(left.astype(np.float32), right.astype(np.float32))
            return Handle(made + start.data, start.dtype.scalar)
        return dot(self, a, b, start, *rest)

    builder.binary_op, builder.unary_op = binary_op, unary_op
    builder.create_fma, builder.create_dot = create_fma, create_dot
    builder.create_rsqrt = lambda self, one: unary_op(self, one, lambda x: 1 / np.sqrt(x))


def _reductions() -> None:
    """Widens what is reduced or scanned, and rounds the result."""
    operation = interpreter.ReduceScanOpInterface
    apply = operation.apply

    def wide(one: Any) -> Any:
        if one.dtype.scalar not in SMALL:
            return one
        return tl.tensor(Handle(widened(one.handle), tl.float32), tl.block_type(tl.float32, list(one.shape)))

    def narrow(out: Any, kind: Any) -> Any:
        if out.dtype.scalar != tl.float32 or kind not in SMALL:
            return out
        shape = tl.block_type(kind, list(out.shape)) if out.type.is_block() else kind
        return tl.tensor(_rounded(out.handle.data, kind), shape)

    def repaired(self: Any, given: Any) -> Any:
        if not isinstance(given, tuple):
            return repaired(self, (given,))[0]
        made = apply(self, tuple(wide(one) for one in given))
        return tuple(narrow(out, one.dtype.scalar) for out, one in zip(made, given, strict=True))

    operation.apply = repaired


def _arguments() -> None:
    """A float that a kernel is called with is one of float32, not Python's."""
    convert = interpreter._implicit_cvt

    def repaired(value: Any) -> Any:
        if isinstance(value, float):
            return tl.tensor(Handle(np.array([value], dtype=np.float32), tl.float32), tl.float32)
        return convert(value)

    interpreter._implicit_cvt = repaired


def _library() -> None:
    """Gives the device's library of functions those of numpy; all of them, since kernels hold them by name."""

    def own(function: Callable[..., Any]) -> Callable[..., Any]:
        def called(*given: Any, **_: Any) -> Any:
            args = [x if isinstance(x, tl.tensor) else interpreter.interpreter_semantic.to_tensor(x) for x in given]
            kind = args[0].dtype
            out = np.asarray(function(*(x.handle.data for x in args)))
            shape = tl.block_type(kind, list(out.shape)) if args[0].type.is_block() else kind
            return tl.tensor(Handle(out.astype(interpreter._get_np_dtype(kind)), kind), shape)

        return called

    for name, function in LIBDEVICE.items():
        if hasattr(libdevice, name):
            setattr(libdevice, name, own(function))


def _grids() -> None:
    """A grid that is computed sees what the host passes, which it may write to, as with a compiled kernel."""
    run = interpreter.InterpretedFunction.run

    def repaired(self: Any, *args: Any, grid: Any, **kwargs: Any) -> Any:
        if callable(grid):
            grid = grid({**dict(zip(self.arg_names, args, strict=False)), **kwargs})
        return run(self, *args, grid=grid, **kwargs)

    interpreter.InterpretedFunction.run = repaired


def _masks(builder: Any) -> None:
    """A mask that Python's own booleans went into is one of booleans."""
    load, store = builder.create_masked_load, builder.create_masked_store

    def create_masked_load(self: Any, places: Any, mask: Any, *rest: Any) -> Any:
        return load(self, places, Handle(mask.data.astype(np.bool_), tl.int1), *rest)

    def create_masked_store(self: Any, places: Any, value: Any, mask: Any, *rest: Any) -> Any:
        return store(self, places, value, Handle(mask.data.astype(np.bool_), tl.int1), *rest)

    builder.create_masked_load, builder.create_masked_store = create_masked_load, create_masked_store


class FirstConfig(KernelInterface[Any]):
    """An autotuned kernel with its first configuration."""

    def __init__(self, kernel: Any, config: Any) -> None:
        self.kernel, self.fn, self.arg_names, self.config = kernel, kernel, kernel.arg_names, config

    def run(self, *args: Any, **kwargs: Any) -> Any:
        """Launches the kernel."""
        return self.kernel.run(*args, **{**kwargs, **self.config.all_kwargs()})


def first_config(configs: Sequence[Any], key: Any = None, **_: Any) -> Callable[[Any], FirstConfig]:
    """What stands for `triton.autotune`."""
    return lambda kernel: FirstConfig(kernel, configs[0])


def bind_late(module: ModuleType) -> None:
    """Gives a module that holds functions of Triton by name those that the interpreter puts in their place."""
    for name, value in list(vars(module).items()):
        if getattr(value, "__triton_builtin__", False) and getattr(tl, value.__name__, None) is value:
            setattr(module, name, _late(value.__name__))


def _late(name: str) -> Callable[..., Any]:
    def called(*args: Any, **kwargs: Any) -> Any:
        function = getattr(tl, name)  # as it is now, not when the module was loaded
        return function(*args, **kwargs)

    return called


def count_in_tensors(module: ModuleType) -> None:
    """Lets `range` in a module's kernels count in tensors, as on a device; the module may have no loop of its own."""
    vars(module)["range"] = _indices


def _indices(*bounds: Any) -> Iterator[Any]:
    for i in range(*(int(one) for one in bounds)):
        yield interpreter.interpreter_semantic.to_tensor(i)
