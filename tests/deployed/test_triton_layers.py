"""Triton kernels of linear attention, norms and gates in vLLM and SGLang, interpreted."""

from __future__ import annotations

from functools import cache
from types import ModuleType

import sources
import torch
from compare import INTERPRETER, Agrees, Case, Kernel, cases
from torch.nn import functional

FLA = "vllm.third_party.flash_linear_attention.ops"
MROPE = "vllm.model_executor.layers.rotary_embedding.mrope"


@cache
def fla(name: str) -> ModuleType:
    """A module of vLLM's copy of flash-linear-attention."""
    import interpreter

    given = {f"{FLA}.utils": {"FLA_CHUNK_SIZE": 64, "check_shared_mem": lambda: True}}
    made = sources.module(f"{FLA}.{name}", f"{FLA}.op", given=given)
    if name == "chunk_delta_h":
        interpreter.count_in_tensors(made)
    return made


@cases("chunk_delta_rule_output", token_count=83)
def test_chunk_delta_rule_output(case: Case, agrees: Agrees) -> None:
    """vLLM keeps a state [dv, dk], the operator [dk, dv]."""

    def run(inputs, sizes):
        q, k, v, h, g = inputs.values()
        return fla("chunk_o").chunk_fwd_o(q, k, v, h.transpose(-1, -2).contiguous(), g)

    agrees(Kernel("vllm", "flash_linear_attention chunk_fwd_o", INTERPRETER), case, run)


@cases("chunk_gated_delta_rule_state", token_count=83, state_count=3)
def test_chunk_gated_delta_rule_state(case: Case, agrees: Agrees) -> None:
    """vLLM keeps a state [dv, dk], and gathers and scatters the rows of the pool around the kernel."""

    def run(inputs, sizes):
        pool, rows = inputs["initial_state"], inputs["initial_state_indices"].long()
        h, v_new, last = fla("chunk_delta_h").chunk_gated_delta_rule_fwd_h(
            inputs["k"], inputs["w"], inputs["u"], inputs["g"],
            initial_state=pool[rows].transpose(-1, -2).contiguous(), output_final_state=True,
        )  # fmt: skip
        pool[rows] = last.transpose(-1, -2)
        return h.transpose(-1, -2).contiguous(), v_new, pool

    agrees(Kernel("vllm", "flash_linear_attention chunk_gated_delta_rule_fwd_h", INTERPRETER), case, run)


@cases("gated_delta_rule_update", token_count=5)
def test_gated_delta_rule_update(case: Case, agrees: Agrees) -> None:
    """vLLM keeps row 0 of its pool back and a state [dv, dk]: the pool is moved on by a row, and turned."""

    def run(inputs, sizes):
        state, rows = inputs["initial_state"], inputs["initial_state_indices"]
        pool = torch.cat([torch.zeros_like(state[:1]), state]).transpose(-1, -2).contiguous()
        tokens = sizes["token_count"]
        out, pool = fla("fused_sigmoid_gating").fused_sigmoid_gating_delta_rule_update(
            inputs["A_log"], inputs["a"][0], inputs["b"][0], inputs["dt_bias"], inputs["q"], inputs["k"], inputs["v"],
            beta=sizes["softplus_beta"], threshold=sizes["softplus_threshold"], initial_state=pool,
            cu_seqlens=torch.tensor([0, tokens], dtype=torch.int32),
            ssm_state_indices=(rows + 1).view(1, 1).expand(1, tokens).contiguous(),
            use_qk_l2norm_in_kernel=sizes["use_qk_l2norm"],
        )  # fmt: skip
        return out, pool[1:].transpose(-1, -2).contiguous()

    agrees(Kernel("vllm", "flash_linear_attention fused_sigmoid_gating_delta_rule_update", INTERPRETER), case, run)


@cases("l2_norm", num_tokens=13)
def test_l2_norm(case: Case, agrees: Agrees) -> None:
    def run(inputs, sizes):
        return fla("l2norm").l2norm_fwd(inputs["x"])

    agrees(Kernel("vllm", "flash_linear_attention l2norm_fwd", INTERPRETER), case, run)


@cases("causal_conv1d", token_count=35)
def test_causal_conv1d(case: Case, agrees: Agrees) -> None:
    """vLLM keeps row 0 of its pool back."""

    def run(inputs, sizes):
        given = {"vllm.v1.attention.backends.utils": {"NULL_BLOCK_ID": 0, "PAD_SLOT_ID": -1}}
        kernels = sources.module("vllm.model_executor.layers.mamba.ops.causal_conv1d", given=given)
        pool = torch.cat([torch.zeros_like(inputs["conv_states"]), inputs["conv_states"]])
        out = kernels.causal_conv1d_fn(
            inputs["x"].T.contiguous().T, inputs["weight"], inputs["bias"], pool,
            torch.tensor([0, sizes["token_count"]], dtype=torch.int32), torch.ones(1, dtype=torch.int32),
            torch.tensor([True]), sizes["activation"],
        )  # fmt: skip
        return out.contiguous(), pool[1:]

    agrees(Kernel("vllm", "mamba.ops.causal_conv1d.causal_conv1d_fn", INTERPRETER), case, run)


@cases("gated_rms_norm", rows=37)
def test_gated_rms_norm(case: Case, agrees: Agrees) -> None:
    """The kernel alone, on the grid of its host function, which sets the accelerator's current device."""

    def run(inputs, sizes):
        x, z, weight = inputs.values()
        kernels = sources.module("vllm.model_executor.layers.mamba.ops.layernorm_gated")
        out, (rows, width) = torch.full_like(x, torch.nan), x.shape
        kernels._layer_norm_fwd_1pass_kernel[(rows, 1)](
            x, out, weight, None, z, None, torch.empty(rows), width, width, width, rows, width, sizes["eps"],
            BLOCK_N=128, NORM_BEFORE_GATE=sizes["norm_before_gate"], IS_RMS_NORM=True,
        )  # fmt: skip
        return out

    agrees(Kernel("vllm", "mamba.ops.layernorm_gated._layer_norm_fwd_1pass_kernel", INTERPRETER), case, run)


@cases("linear_sigmoid_mul", token_count=5)
def test_linear_sigmoid_mul(case: Case, agrees: Agrees) -> None:
    """SGLang's kernel for the gate, behind PyTorch's linear layer in float32."""

    def run(inputs, sizes):
        x, weight, bias = (inputs[name].float() for name in ("x", "weight", "bias"))
        kernels = sources.module("sglang.kernels.ops.elementwise.elementwise")
        return kernels.fused_sigmoid_mul(inputs["m"], functional.linear(x, weight, bias))

    agrees(Kernel("sglang", "elementwise.fused_sigmoid_mul", INTERPRETER), case, run)


@cases("fused_qkv_rope", total_tokens=7)
def test_fused_qkv_rope(case: Case, agrees: Agrees) -> None:
    """As mrope with three equal positions and tables in float32; the split and the values are PyTorch's."""

    def run(inputs, sizes):
        qkv, d = inputs["qkv"], sizes["head_dim"]
        heads = [sizes["num_heads"], sizes["num_kv_heads"], sizes["num_kv_heads"]]
        q, k, v = (part.contiguous() for part in torch.split(qkv, [h * d for h in heads], dim=-1))
        frequency = 10000.0 ** (-torch.arange(0, d, 2).double() / d)
        angle = inputs["positions"].double().view(-1, 1) * frequency
        cos, sin = (one.float().expand(3, -1, -1).contiguous() for one in (angle.cos(), angle.sin()))
        q, k = sources.module(MROPE).triton_mrope(q, k, cos, sin, [16, 24, 24], d, d, False, True)
        return tuple(part.view(len(qkv), h, d) for part, h in zip((q, k, v), heads, strict=True))

    agrees(Kernel("vllm", "rotary_embedding.mrope.triton_mrope", INTERPRETER), case, run)
