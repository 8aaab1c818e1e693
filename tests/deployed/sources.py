"""Triton kernels out of the installed sources, loaded for the interpreter."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType, ModuleType
from typing import Any

import packages
import torch


class Platform(packages.Nothing):
    """What vLLM asks of its platform here: no GPU or ROCm's, with OCP's fp8."""

    def __init__(self, *, rocm: bool = False) -> None:
        self.rocm = rocm

    def is_rocm(self) -> bool:
        return self.rocm

    def is_arch_support_pdl(self) -> bool:
        return False

    def fp8_dtype(self) -> torch.dtype:
        return torch.float8_e4m3fn

    def is_fp8_fnuz(self) -> bool:
        return False


def module(name: str, *needs: str, given: Mapping[str, Mapping[str, Any]] = MappingProxyType({})) -> ModuleType:
    """The module `name` of `vllm` or `sglang`, with Triton's interpreter repaired."""
    import interpreter
    import triton
    import triton.language as tl
    from triton.language.extra import libdevice

    interpreter.repair()
    usual = {
        "vllm.triton_utils": {"triton": triton, "tl": tl, "tldevice": libdevice, "HAS_TRITON": True},
        "vllm.platforms": {"current_platform": Platform()},
        "vllm.model_executor.layers.quantization.utils.quant_utils": {"get_fp8_min_max": lambda: (-448.0, 448.0)},
        "sglang.kernels.jit.utils": {"is_arch_support_pdl": lambda: False},
    }
    made = packages.module(name, *needs, given={**usual, **given})
    interpreter.bind_late(made)
    return made
