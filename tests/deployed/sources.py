"""Triton kernels out of the installed sources, loaded for the interpreter."""

from __future__ import annotations

from types import ModuleType
from typing import Any

import packages
import torch


class Platform(packages.Nothing):
    """What vLLM asks of its platform here: none of those that it knows, with OCP's fp8."""

    def fp8_dtype(self) -> torch.dtype:
        return torch.float8_e4m3fn

    def is_fp8_fnuz(self) -> bool:
        return False


def module(name: str, *needs: str, **given: Any) -> ModuleType:
    """The module `name` of `vllm` or `sglang`, with Triton's interpreter repaired and those modules that it `needs`."""
    import interpreter
    import triton
    import triton.language as tl
    from triton.language.extra import libdevice

    interpreter.repair()
    usual = {
        "vllm.triton_utils": {"triton": triton, "tl": tl, "tldevice": libdevice, "HAS_TRITON": True},
        "vllm.platforms": {"current_platform": Platform()},
    }
    own = {key.replace("__", "."): value for key, value in given.items()}
    return packages.module(name, *needs, given={**usual, **own})
