"""PyTorch's own functions, by another way than the references take."""

from __future__ import annotations

from itertools import pairwise

import torch
from compare import CPU, Agrees, Case, Kernel, cases
from torch.nn import functional


def kernel(name: str) -> Kernel:
    return Kernel("torch", name, CPU)


@cases("layer_norm", shape=lambda shape: [37, *shape[1:]])
def test_layer_norm(case: Case, agrees: Agrees) -> None:
    """In bfloat16 throughout, as the models call it."""

    def run(inputs, sizes):
        return functional.layer_norm(inputs["x"], inputs["weight"].shape, inputs["weight"], inputs["bias"], 1e-5)

    agrees(kernel("nn.functional.layer_norm"), case, run)


@cases("rms_norm", token_count=37)
def test_rms_norm(case: Case, agrees: Agrees) -> None:
    def run(inputs, sizes):
        return functional.rms_norm(inputs["x"], inputs["weight"].shape, inputs["weight"], sizes["eps"])

    agrees(kernel("nn.functional.rms_norm"), case, run)


@cases("attention_forward", seq_lens=[70, 1, 33])
def test_attention_forward(case: Case, agrees: Agrees) -> None:
    """The kernel that PyTorch takes for flash attention on a CPU, a sequence at a time."""

    def run(inputs, sizes):
        q, k, v = (inputs[name] for name in "qkv")
        out = torch.empty_like(q)
        for start, end in pairwise(inputs["cu_seqlens"].tolist()):
            parts = (x[None, start:end].transpose(1, 2) for x in (q, k, v))
            made, _ = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu(*parts)
            out[start:end] = made.transpose(1, 2)[0]
        return out

    agrees(kernel("aten._scaled_dot_product_flash_attention_for_cpu"), case, run)


@cases("causal_conv1d", token_count=67)
def test_causal_conv1d(case: Case, agrees: Agrees) -> None:
    def run(inputs, sizes):
        seen = torch.cat([inputs["conv_states"], inputs["x"][None]], dim=2)
        weight, bias = inputs["weight"].float()[:, None], inputs["bias"].float()
        out = functional.silu(functional.conv1d(seen.float(), weight, bias, groups=sizes["dim"])[0])
        return out.to(seen.dtype), seen[:, :, sizes["token_count"] :].contiguous()

    agrees(kernel("nn.functional.conv1d, silu, in float32"), case, run)


@cases("linear_sigmoid_mul", token_count=13)
def test_linear_sigmoid_mul(case: Case, agrees: Agrees) -> None:
    def run(inputs, sizes):
        x, weight, bias = (inputs[name].float() for name in ("x", "weight", "bias"))
        return (torch.addmm(bias, x, weight.T).sigmoid() * inputs["m"].float()).to(inputs["x"].dtype)

    agrees(kernel("addmm, sigmoid, in float32"), case, run)


@cases("topk_filter", seq_len=5)
def test_topk_filter(case: Case, agrees: Agrees) -> None:
    """By the k-th smallest of the logits' negatives."""

    def run(inputs, sizes):
        logits = inputs["logits"]
        least = -torch.kthvalue(-logits, sizes.get("top_k", 50), dim=-1, keepdim=True).values
        return torch.where(logits >= least, logits, -torch.inf)

    agrees(kernel("kthvalue, where"), case, run)


@cases("l2_norm", num_tokens=37)
def test_l2_norm(case: Case, agrees: Agrees) -> None:
    def run(inputs, sizes):
        wide = inputs["x"].float()
        return (wide / torch.linalg.vector_norm(wide, dim=-1, keepdim=True).square().add(1e-6).sqrt()).bfloat16()

    agrees(kernel("linalg.vector_norm, in float32"), case, run)


@cases("moe_topk_gating_softmax", token_count=37)
def test_moe_topk_gating_softmax(case: Case, agrees: Agrees) -> None:
    def run(inputs, sizes):
        weights, ids = inputs["gating"].softmax(-1).sort(dim=-1, descending=True)
        return weights[:, : sizes["top_k"]].contiguous(), ids[:, : sizes["top_k"]].int().contiguous()

    agrees(kernel("softmax, sort"), case, run)


@cases("moe_count_and_sort", token_count=37)
def test_moe_count_and_sort(case: Case, agrees: Agrees) -> None:
    def run(inputs, sizes):
        values, slots = inputs["topk_ids"].flatten().sort(stable=True)
        cumsum = torch.searchsorted(values, torch.arange(sizes["num_experts"] + 1, dtype=torch.int32))
        return slots.int(), cumsum.diff().int(), cumsum.int()

    agrees(kernel("sort, searchsorted"), case, run)
