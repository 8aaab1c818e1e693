"""The judge's side of `moe_align_block_size`: a checker of the whole answer.

The slots of an expert may come in any order, so that no place has one right value, and every place depends on how
many slots the experts before have: the rows are coupled and are always looked at together.
"""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from roofmark.operators.draw import near
from roofmark.operators.expected import Expected

WHOLE = True


def neighbours(rng: random.Random, **sizes: Any) -> tuple[dict[str, Any], dict[str, Any]]:
    first, second = near(rng, sizes["token_count"])
    return {**sizes, "token_count": first}, {**sizes, "token_count": second}


@dataclass(frozen=True)
class _Plan:
    """What every right answer has in common.

    experts: [T k] int64, the expert of each slot. counts: [E], their slots. begin: [E], the place of their first.
    owners: [blocks], the expert of each block in use.
    """

    experts: Tensor
    counts: Tensor
    begin: Tensor
    owners: Tensor


def _plan(inputs: Mapping[str, Tensor], sizes: Mapping[str, Any]) -> _Plan:
    experts = inputs["topk_ids"].flatten().long()
    all_experts = torch.arange(sizes["num_experts"], device=experts.device)
    ordered = experts.sort().values
    counts = torch.searchsorted(ordered, all_experts, right=True) - torch.searchsorted(ordered, all_experts)
    blocks = -(-counts // sizes["block_size"])
    begin = (blocks.cumsum(0) - blocks) * sizes["block_size"]
    return _Plan(experts, counts, begin, torch.repeat_interleave(all_experts, blocks))


def expected_rows(inputs: Mapping[str, Tensor], sizes: Mapping[str, Any], index: Tensor) -> dict[str, Expected]:
    """All of the three outputs, whatever `index` is: of the right answers the one with rising slots in an expert."""
    plan = _plan(inputs, sizes)
    slots, block_size = len(plan.experts), sizes["block_size"]
    order = torch.argsort(plan.experts, stable=True)
    earlier = plan.counts.cumsum(0) - plan.counts
    place = torch.arange(slots, device=order.device) + (plan.begin - earlier)[plan.experts[order]]
    sorted_ids = order.new_full((_places(sizes),), slots)
    sorted_ids[place] = order
    expert_ids = order.new_zeros(-(-len(sorted_ids) // block_size))
    expert_ids[: len(plan.owners)] = plan.owners
    return {
        "sorted_ids": Expected(sorted_ids, None),
        "expert_ids": Expected(expert_ids, None),
        "num_tokens_post_pad": Expected(order.new_tensor([len(plan.owners) * block_size]), None),
    }


def _places(sizes: Mapping[str, Any]) -> int:
    slots, experts, block_size = sizes["token_count"] * sizes["top_k"], sizes["num_experts"], sizes["block_size"]
    places = slots + experts * (block_size - 1)
    return int(min(places, slots * block_size) if slots < experts else places)


def judge_rows(
    inputs: Mapping[str, Tensor], sizes: Mapping[str, Any], index: Tensor, outputs: Mapping[str, Tensor]
) -> str:
    """What is wrong with the three outputs, all of each; "" if nothing."""
    plan = _plan(inputs, sizes)
    slots, block_size = len(plan.experts), sizes["block_size"]
    sorted_ids, expert_ids, total = (outputs[name] for name in ("sorted_ids", "expert_ids", "num_tokens_post_pad"))
    used = len(plan.owners) * block_size
    if bool((total != used).any()):
        return f"num_tokens_post_pad is {total[0].item()}, should be {used}"
    owners = torch.zeros(len(expert_ids), dtype=torch.int64, device=expert_ids.device)
    owners[: len(plan.owners)] = plan.owners
    if bool((wrong := expert_ids != owners).any()):
        return _say("expert_ids", wrong, expert_ids, f"expert {owners[wrong.nonzero()[0, 0]].item()}")
    place = torch.arange(len(sorted_ids), device=sorted_ids.device)
    owner = owners[place // block_size]
    live = (place < used) & (place - plan.begin[owner] < plan.counts[owner])
    if bool((wrong := ~live & (sorted_ids != slots)).any()):
        return _say("sorted_ids", wrong, sorted_ids, f"{slots} for padding")
    if bool((wrong := live & ((sorted_ids < 0) | (sorted_ids >= slots))).any()):
        return _say("sorted_ids", wrong, sorted_ids, "a slot")
    if bool((wrong := live & (plan.experts[sorted_ids.long().clamp(0, slots - 1)] != owner)).any()):
        return _say("sorted_ids", wrong, sorted_ids, f"a slot of expert {owner[wrong.nonzero()[0, 0]].item()}")
    if bool((sorted_ids[live].sort().values != torch.arange(slots, device=place.device)).any()):
        return "sorted_ids holds a slot twice"
    return ""


def _say(name: str, wrong: Tensor, values: Tensor, want: str) -> str:
    place = int(wrong.nonzero()[0, 0])
    return f"{name}[{place}] is {values[place].item()}, should be {want}; {int(wrong.sum())} of {len(wrong)} are wrong"
