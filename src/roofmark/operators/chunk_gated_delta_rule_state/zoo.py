"""Wrong and right answers of `chunk_gated_delta_rule_state`; see `roofmark.operators.zoo`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor

from roofmark.operators.zoo import Candidate, fp8

BF16 = torch.bfloat16
Inputs = Mapping[str, Tensor]
Sizes = dict[str, Any]
Answer = tuple[Tensor, Tensor, Tensor]
Change = Callable[[Tensor], Tensor]


def _same(x: Tensor) -> Tensor:
    return x


def _bf16(x: Tensor) -> Tensor:
    return x.to(BF16).to(x.dtype)


def _owned(i: Inputs) -> Tensor:
    return i["initial_state_indices"].long()


def _parts(i: Inputs, s: Sizes, kind: torch.dtype = torch.float32) -> list[tuple[slice, dict[str, Tensor]]]:
    """For each chunk its tokens, and its keys, reads, values, decays and the last decay, [B, hv, tokens, …]."""
    heads = torch.arange(s["num_v_heads"]) // (s["num_v_heads"] // s["num_k_heads"])
    found = []
    for start in range(0, s["token_count"], s["chunk_size"]):
        part = slice(start, min(start + s["chunk_size"], s["token_count"]))
        few = {"k": i["k"][:, part][:, :, heads], "w": i["w"][:, part], "u": i["u"][:, part]}
        few["g"] = i["g"][:, part].unsqueeze(-1)
        wide = {name: x.to(kind).transpose(1, 2) for name, x in few.items()}
        wide["last"] = wide["g"][:, :, -1:]
        found.append((part, wide))
    return found


def _run(
    i: Inputs,
    s: Sizes,
    *,
    kept: Change = _same,
    read: Change = _same,
    written: Change = _same,
    start: Tensor | None = None,
    kind: torch.dtype = torch.float32,
) -> Answer:
    """Chunk after chunk, with the state changed when it is kept or read, the decayed new values when written."""
    state = (i["initial_state"][_owned(i)] if start is None else start).to(kind)
    h, v_new = [], torch.empty_like(i["u"])
    for part, x in _parts(i, s, kind):
        h.append(state.to(BF16))
        new = x["u"] - x["w"] @ read(state)
        v_new[:, part] = new.transpose(1, 2).to(BF16)
        state = kept(state * x["last"].exp() + x["k"].mT @ written(new * (x["last"] - x["g"]).exp()))
    return torch.stack(h, 1), v_new, _placed(i, state)


def _placed(i: Inputs, state: Tensor) -> Tensor:
    """The pool with the owned rows replaced."""
    pool = i["initial_state"].clone()
    pool[_owned(i)] = state.float()
    return pool


def _changed(i: Inputs, s: Sizes, **changed: Tensor) -> Answer:
    """The answer to inputs some of which are changed, in a pool that is not."""
    start = {**i, **changed}["initial_state"][_owned({**i, **changed})]
    return _run({**i, **{k: v for k, v in changed.items() if not k.startswith("initial")}}, s, start=start)


def _in_fp8(i: Inputs, s: Sizes, name: str) -> Answer:
    return _changed(i, s, **{name: fp8(i[name].float()).to(BF16)})


def _new_not_decayed(i: Inputs, s: Sizes) -> Answer:
    state = i["initial_state"][_owned(i)]
    h, v_new = [], torch.empty_like(i["u"])
    for part, x in _parts(i, s):
        h.append(state.to(BF16))
        new = x["u"] - x["w"] @ state
        v_new[:, part] = new.transpose(1, 2).to(BF16)
        state = state * x["last"].exp() + x["k"].mT @ new
    return torch.stack(h, 1), v_new, _placed(i, state)


def _decayed_once_more(i: Inputs, s: Sizes) -> Answer:
    """The new values are stored as they are written to the state."""
    h, v_new, final = _run(i, s)
    g = i["g"].unsqueeze(-1)
    for start in range(0, s["token_count"], s["chunk_size"]):
        part = slice(start, start + s["chunk_size"])
        v_new[:, part] = (v_new[:, part].float() * (g[:, part][:, -1:] - g[:, part]).exp()).to(BF16)
    return h, v_new, final


def _after(i: Inputs, s: Sizes) -> Answer:
    """States after the chunks, not before them."""
    h, v_new, final = _run(i, s)
    return torch.cat([h[:, 1:], final[_owned(i)].to(BF16).unsqueeze(1)], 1), v_new, final


def _nothing_read(i: Inputs, s: Sizes) -> Answer:
    return _changed(i, s, w=i["w"] * 0)


def _last_tokens(i: Inputs, s: Sizes, count: int) -> Answer:
    """Each state is what the last few tokens before it wrote."""
    h, v_new, _ = _run(i, s)
    states: list[Tensor] = []
    for (_, x), before in zip(_parts(i, s), _states(i, s), strict=True):
        new = (x["u"] - x["w"] @ before) * (x["last"] - x["g"]).exp()
        states.append(x["k"][:, :, -count:].mT @ new[:, :, -count:])
    cut = torch.stack([h[:, 0].float(), *states[:-1]], 1).to(BF16)
    return cut, v_new, _placed(i, states[-1])


def _window(i: Inputs, s: Sizes, chunks: int) -> Answer | None:
    """Each state from the last few chunks alone; None where there are no more."""
    parts = _parts(i, s)
    if len(parts) <= chunks:
        return None
    v_new = _run(i, s)[1]
    states = []
    for n in range(len(parts) + 1):
        state = i["initial_state"][_owned(i)] * (n <= chunks)
        for _, x in parts[max(0, n - chunks) : n]:
            new = x["u"] - x["w"] @ state
            state = state * x["last"].exp() + x["k"].mT @ (new * (x["last"] - x["g"]).exp())
        states.append(state)
    return torch.stack(states[:-1], 1).to(BF16), v_new, _placed(i, states[-1])


def _last_chunk_not_written(i: Inputs, s: Sizes) -> Answer:
    h, v_new, _ = _run(i, s)
    return h, v_new, _placed(i, h[:, -1].float())


def _tail_decays_to_zero(i: Inputs, s: Sizes) -> Answer | None:
    """The last decay of a short chunk is read behind its end, where zeros are."""
    if s["token_count"] % s["chunk_size"] == 0:
        return None
    h, v_new, _ = _run(i, s)
    _, x = _parts(i, s)[-1]
    before = _states(i, s)[-1]
    new = x["u"] - x["w"] @ before
    return h, v_new, _placed(i, before + x["k"].mT @ (new * (-x["g"]).exp()))


def _states(i: Inputs, s: Sizes) -> list[Tensor]:
    """The states before all chunks, float32."""
    found = [i["initial_state"][_owned(i)]]
    for _, x in _parts(i, s)[:-1]:
        new = x["u"] - x["w"] @ found[-1]
        found.append(found[-1] * x["last"].exp() + x["k"].mT @ (new * (x["last"] - x["g"]).exp()))
    return found


def _key_heads_in_turn(i: Inputs, s: Sizes) -> Answer | None:
    if s["num_k_heads"] in (1, s["num_v_heads"]):
        return None
    heads = torch.arange(s["num_v_heads"]) % s["num_k_heads"]
    return _run({**i, "k": i["k"][:, :, heads]}, {**s, "num_k_heads": s["num_v_heads"]})


def _first_key_head(i: Inputs, s: Sizes) -> Answer | None:
    return _changed(i, s, k=i["k"][:, :, :1].expand_as(i["k"])) if s["num_k_heads"] > 1 else None


def _row_zero(i: Inputs, s: Sizes) -> Answer | None:
    """The first rows of the pool, whatever the indices say; None where they say so."""
    rows = torch.arange(s["batch_size"], dtype=i["initial_state_indices"].dtype)
    return _run({**i, "initial_state_indices": rows}, s) if (rows != i["initial_state_indices"]).any() else None


def _next_row(i: Inputs, s: Sizes) -> Answer | None:
    """The states are read one row on and written to the right one."""
    if s["state_count"] == 1:
        return None
    return _changed(i, s, initial_state=i["initial_state"].roll(-1, 0))


def _steps(i: Inputs, s: Sizes) -> Answer:
    """Decays of single tokens, not summed up."""
    g = i["g"].clone()
    inside = torch.arange(s["token_count"]) % s["chunk_size"] != 0
    g[:, inside] -= i["g"].roll(1, 1)[:, inside]
    return _changed(i, s, g=g)


ROWS = ()
WRONG: dict[str, Candidate] = {
    "no initial state": lambda i, s: _changed(i, s, initial_state=i["initial_state"] * 0),
    "next row of the pool": _next_row,
    "first rows of the pool": _row_zero,
    "pool as it was": lambda i, s: (*_run(i, s)[:2], i["initial_state"]),
    "pool not kept": lambda i, s: (
        *_run(i, s)[:2],
        _placed({**i, "initial_state": i["initial_state"] * 0}, _end(i, s)),
    ),
    "no decay": lambda i, s: _changed(i, s, g=i["g"] * 0),
    "next head's decay": lambda i, s: _changed(i, s, g=i["g"].roll(1, 2)),
    "decays not summed up": _steps,
    "new values not decayed": _new_not_decayed,
    "new values decayed when stored": _decayed_once_more,
    "states after the chunks": _after,
    "nothing read": _nothing_read,
    "u for the new values": lambda i, s: (_run(i, s)[0], i["u"], _run(i, s)[2]),
    "nothing written": lambda i, s: _changed(i, s, k=i["k"] * 0),
    "next head's keys": lambda i, s: _changed(i, s, k=i["k"].roll(1, 3)),
    "next head's reads": lambda i, s: _changed(i, s, w=i["w"].roll(1, 2)),
    "key heads in turn": _key_heads_in_turn,
    "first key head": _first_key_head,
    "last four tokens": lambda i, s: _last_tokens(i, s, 4),
    "own chunk alone": lambda i, s: _window(i, s, 1),
    "last four chunks": lambda i, s: _window(i, s, 4),
    "last chunk not written": _last_chunk_not_written,
    "zero for the last decay of a tail": _tail_decays_to_zero,
    "state in bf16": lambda i, s: _run(i, s, kept=_bf16),
    "state in fp8": lambda i, s: _run(i, s, kept=fp8),
    "state read in fp8": lambda i, s: _run(i, s, read=fp8),
    "new values in fp8": lambda i, s: _run(i, s, written=fp8),
    "keys in fp8": lambda i, s: _in_fp8(i, s, "k"),
    "reads in fp8": lambda i, s: _in_fp8(i, s, "w"),
    "values in fp8": lambda i, s: _in_fp8(i, s, "u"),
    "final state in bf16": lambda i, s: (*_run(i, s)[:2], _placed(i, _bf16(_end(i, s)))),
}


def _end(i: Inputs, s: Sizes) -> Tensor:
    return _run(i, s)[2][_owned(i)]


def _by_transitions(i: Inputs, s: Sizes) -> Answer:
    """Chunks become matrices by which the state moves on; the new values follow from the states."""
    state = i["initial_state"][_owned(i)]
    h, v_new = [], torch.empty_like(i["u"])
    for part, x in _parts(i, s):
        h.append(state.to(BF16))
        v_new[:, part] = (x["u"] - x["w"] @ state).transpose(1, 2).to(BF16)
        keys = (x["k"] * (x["last"] - x["g"]).exp()).mT
        state = (torch.eye(s["key_dim"]) * x["last"].exp() - keys @ x["w"]) @ state + keys @ x["u"]
    return torch.stack(h, 1), v_new, _placed(i, state)


def _rounded_twice(i: Inputs, s: Sizes, *, keys: bool) -> Answer:
    """New values as they are stored are decayed, or the keys in their place, and rounded again."""
    state = i["initial_state"][_owned(i)]
    h, v_new = [], torch.empty_like(i["u"])
    for part, x in _parts(i, s):
        h.append(state.to(BF16))
        new = (x["u"] - x["w"] @ _bf16(state)).to(BF16)
        v_new[:, part] = new.transpose(1, 2)
        left = (x["last"] - x["g"]).exp()
        written = (_bf16(x["k"] * left), new.float()) if keys else (x["k"], _bf16(new.float() * left))
        state = state * x["last"].exp() + written[0].mT @ written[1]
    return torch.stack(h, 1), v_new, _placed(i, state)


RIGHT: dict[str, Candidate] = {
    "new values in bf16, decayed in bf16": lambda i, s: _rounded_twice(i, s, keys=False),
    "new values in bf16, keys decayed in bf16": lambda i, s: _rounded_twice(i, s, keys=True),
    "state and new values in bf16 for products": lambda i, s: _run(i, s, read=_bf16, written=_bf16),
    "float32": _run,
    "float64": lambda i, s: _run(i, s, kind=torch.float64),
    "by transitions": _by_transitions,
}


def _apart(i: Inputs, s: Sizes) -> Answer:
    """The decay to the end of the chunk as a quotient, which float32 can't hold where decays are steep."""
    state = i["initial_state"][_owned(i)]
    h, v_new = [], torch.empty_like(i["u"])
    for part, x in _parts(i, s):
        h.append(state.to(BF16))
        new = x["u"] - x["w"] @ state
        v_new[:, part] = new.transpose(1, 2).to(BF16)
        state = state * x["last"].exp() + x["k"].mT @ (new * (-x["g"]).exp()) * x["last"].exp()
    return torch.stack(h, 1), v_new, _placed(i, state)


WRONG_ON_CORNERS: dict[tuple[str, str], Candidate] = {
    ("steep", "decays apart"): _apart,
    ("steep", "decays in bf16"): lambda i, s: _changed(i, s, g=i["g"].to(BF16).float()),
    ("tail", "zero for the last decay of a tail"): _tail_decays_to_zero,
    ("batch", "first rows of the pool"): _row_zero,
    ("batch", "next row of the pool"): _next_row,
    ("no_decay", "last four tokens"): lambda i, s: _last_tokens(i, s, 4),
    ("zero_state", "state read from the next row"): _next_row,
}
