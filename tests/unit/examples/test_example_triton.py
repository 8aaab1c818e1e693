"""The Triton examples compile for sm_90 on any machine, and are right where there is a GPU."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from example_cases import EMPTY, INIT, example, fault, runs

triton = pytest.importorskip("triton")

NORM = {"x": "*bf16", "weight": "*bf16", "out": "*bf16", "rows": "i32", "eps": "fp32"}
MM = {
    "a": "*fp8e4nv",
    "b": "*fp8e4nv",
    "a_scales": "*fp32",
    "b_scales": "*fp32",
    "out": "*bf16",
    "m": "i32",
    "n": "i32",
}
ATTENTION = {
    "q": "*bf16",
    "k": "*bf16",
    "v": "*bf16",
    "out": "*bf16",
    "cu": "*i32",
    "sequences": "i32",
    "scale": "fp32",
}
DECODE = {
    "query": "*fp16", "key_cache": "*fp16", "value_cache": "*fp16", "tables": "*i32", "lengths": "*i32",
    "out": "*fp16", "parts": "*fp32", "tops": "*fp32", "limit": "i32", "stretch": "i32", "scale": "fp32",
}  # fmt: skip
JOIN = {"parts": "*fp32", "tops": "*fp32", "out": "*fp16"}
TOPK = {"gating": "*fp32", "weights": "*fp32", "ids": "*i32", "rows": "i32"}
PAGED = {"KV_HEADS": 4, "GROUP": 8, "ROWS": 16, "BLOCK": 64}
# operator, kernel, types, constants, options
KERNELS: list[tuple[str, str, dict[str, str], dict[str, int], dict[str, int]]] = [
    ("rms_norm", "_rms_norm", NORM, {"WIDTH": 1152, "BLOCK": 2048, "ROWS": 1}, {"num_warps": 4}),
    ("silu_and_mul", "_silu_and_mul", {"x": "*bf16", "out": "*bf16"}, {"WIDTH": 3584, "BLOCK": 2048}, {"num_warps": 4}),
    (
        "moe_topk_gating_softmax", "_topk", TOPK,
        {"EXPERTS": 128, "TOP": 8, "BLOCK": 128, "PLACES": 8, "ROWS": 8}, {"num_warps": 4},
    ),
    (
        "attention_forward", "_attention", ATTENTION,
        {"HEADS": 16, "SIZE": 72, "D": 128, "BLOCK_M": 128, "BLOCK_N": 128, "SEQUENCES": 16},
        {"num_warps": 8, "num_stages": 2},
    ),
    (
        "paged_attention_decode", "_decode", DECODE, {**PAGED, "SIZE": 128, "D": 128, "SPLITS": 4},
        {"num_warps": 4, "num_stages": 3},
    ),
    (
        "paged_attention_decode", "_decode", DECODE, {**PAGED, "SIZE": 256, "D": 256, "SPLITS": 1},
        {"num_warps": 8, "num_stages": 2},
    ),
    ("paged_attention_decode", "_join", JOIN, {"SIZE": 128, "D": 128, "SPLITS": 4, "PADDED": 4}, {"num_warps": 4}),
]  # fmt: skip
SHARED_MEMORY = 227 * 1024


def built(kernel: Any, types: dict[str, str], constants: dict[str, int], options: dict[str, int]) -> Any:
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource

    full = {name: types.get(name, "constexpr") for name in kernel.arg_names}
    places = [i for i, kind in enumerate(full.values()) if kind.startswith("*")]
    aligned = {(i,): [["tt.divisibility", 16]] for i in places}
    source = ASTSource(kernel, full, constexprs=constants, attrs=aligned)
    return triton.compile(source, target=GPUTarget("cuda", 90, 32), options=options)


@pytest.mark.parametrize("case", KERNELS, ids=lambda case: f"{case[1]}-{'-'.join(map(str, case[3].values()))}")
def test_a_kernel_compiles_for_hopper(
    case: tuple[str, str, dict[str, str], dict[str, int], dict[str, int]],
    tmp_path: Any,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path))
    monkeypatch.setenv("TRITON_DEFAULT_FP_FUSION", "1")
    name, kernel, types, constants, options = case
    code = built(getattr(example("triton", name), kernel), types, constants, options)
    assert code.asm["cubin"][1:4] == b"ELF"
    assert code.metadata.shared <= SHARED_MEMORY
    assert ("wgmma" in code.asm["ptx"]) == (name == "attention_forward")


@pytest.mark.parametrize("m", [1, 64, 300, 4096])
def test_the_matrix_product_uses_tensor_cores_at_every_size(
    m: int, tmp_path: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path))
    monkeypatch.setenv("TRITON_DEFAULT_FP_FUSION", "1")
    module = example("triton", "block_scaled_mm")
    block_m, block_n, warps, stages = module._plan(m, 2048)
    constants = {"K": 512, "GROUP_N": 128, "GROUP_K": 128, "BLOCK_M": block_m, "BLOCK_N": block_n, "TOGETHER": 8}
    code = built(module._block_scaled_mm, MM, constants, {"num_warps": warps, "num_stages": stages})
    assert code.metadata.shared <= SHARED_MEMORY
    assert ("wgmma" if m > 16 else "mma.sync") in code.asm["ptx"]


@pytest.mark.parametrize("name", INIT)
def test_an_example_takes_no_tokens(name: str) -> None:
    made = example("triton", name).Model(**INIT[name])(*EMPTY[name])
    assert all(out.shape[0] == 0 for out in (made if isinstance(made, tuple) else (made,)))


@pytest.mark.cuda
@pytest.mark.parametrize("name", INIT)
def test_an_example_is_right_on_a_gpu(name: str) -> None:
    model = example("triton", name).Model(**INIT[name])
    faults = {title: fault(model, name, corner, sizes, "cuda") for title, corner, sizes in runs(name)}
    assert {title: said for title, said in faults.items() if said} == {}


@pytest.mark.cuda
def test_offsets_beyond_32_bits_are_right_on_a_gpu() -> None:
    model = example("triton", "rms_norm").Model(1e-6)
    x = torch.ones(300_000, 8192, dtype=torch.bfloat16, device="cuda")
    assert model(x, torch.ones(8192, dtype=torch.bfloat16, device="cuda"))[-1].eq(1).all()
    mm = example("triton", "block_scaled_mm").Model(128, 128)
    a = torch.ones(600_000, 128, device="cuda").to(torch.float8_e4m3fn)
    b = torch.ones(4096, 128, device="cuda").to(torch.float8_e4m3fn)
    scales = torch.ones(600_000, 1, device="cuda"), torch.ones(32, 1, device="cuda")
    assert mm(a, b, *scales)[-1].eq(128).all()
