"""Softmax and top-k of a MoE router on a CPU: the k largest probabilities of each row, largest first.

One pass builds a 64-bit key per expert: the order of its logit above, the complement of its index below. The
k largest are then k integer maxima, which vectorise; equal logits come in the order of their index. The
softmax needs no second array: only the k winners are ever divided.
"""

import numpy as np
import torch
from numba import carray, get_num_threads, njit, prange, types
from numba.extending import intrinsic

SERIAL_BELOW = 1 << 15
SUM = {"reassoc", "nsz", "contract"}


def _pointer(kind):
    """A function that turns an address into a pointer to `kind`."""

    @intrinsic
    def at(typing, address):
        def generate(context, builder, signature, args):
            return builder.inttoptr(args[0], context.get_value_type(signature.return_type))

        return types.CPointer(kind)(types.intp), generate

    return at


_i32_at = _pointer(types.int32)
_f32_at = _pointer(types.float32)


@njit(cache=True, fastmath={"contract"})
def exp(x):
    """e^x in float32 within 1 ulp, without a call, so that loops around it vectorise.

    `fastmath` is said aloud: numba hands down that of a caller, and `reassoc` would cancel the rounding.
    """
    zero = x < np.float32(-87.3)
    x = np.float32(-87.3) if zero else x
    x = np.float32(89.0) if x > np.float32(89.0) else x
    shifted = x * np.float32(1.44269504) + np.float32(12582912.0)  # 1.5 * 2^23: rounds to an integer
    n = shifted - np.float32(12582912.0)
    r = x - n * np.float32(0.693359375) - n * np.float32(-2.12194440e-4)
    p = np.float32(1.9875691500e-4)
    p = p * r + np.float32(1.3981999507e-3)
    p = p * r + np.float32(8.3334519073e-3)
    p = p * r + np.float32(4.1665795894e-2)
    p = p * r + np.float32(1.6666665459e-1)
    p = p * r + np.float32(5.0000001201e-1)
    power = np.uint32(np.uint32(np.float32(shifted).view(np.uint32) << np.uint32(23)) + np.uint32(0x3F800000))
    y = (p * r * r + r + np.float32(1)) * np.uint32(power).view(np.float32)
    return np.float32(0) if zero else y


@njit(cache=True, fastmath=SUM)
def _exponential_sum(row, top):
    total = np.float32(0)
    for i in range(row.size):
        total += exp(row[i] - top)
    return total


@njit(cache=True)
def _keys(row, keys):
    for i in range(row.size):
        bits = np.float32(row[i]).view(np.int32)
        order = np.int32(bits ^ (np.int32(bits >> np.int32(31)) & np.int32(0x7FFFFFFF)))
        keys[i] = np.int64(np.int64(order) << np.int64(32)) | np.int64(0x7FFFFFFF - i)


@njit(cache=True)
def _largest(keys):
    best = np.int64(-0x8000000000000000)
    for i in range(keys.size):
        best = max(best, keys[i])
    return best


@njit(cache=True, error_model="numpy")
def _rows(gating, weights, ids, sizes, first, last):
    rows, experts, places = sizes
    logits_of = carray(_f32_at(gating), (rows, experts))
    values, found = carray(_f32_at(weights), (rows, places)), carray(_i32_at(ids), (rows, places))
    keys = np.empty(experts, np.int64)
    for row in range(first, last):
        logits = logits_of[row]
        _keys(logits, keys)
        top, total = np.float32(0), np.float32(0)
        for k in range(places):
            expert = 0x7FFFFFFF - (_largest(keys) & 0x7FFFFFFF)
            keys[expert] = -0x8000000000000000
            if k == 0:
                top = logits[expert]
                total = _exponential_sum(logits, top)
            found[row, k] = expert
            values[row, k] = exp(logits[expert] - top) / total


@njit(cache=True, parallel=True)
def _parallel(gating, weights, ids, sizes, chunks):
    for chunk in prange(chunks):
        rows = sizes[0]
        _rows(gating, weights, ids, sizes, rows * chunk // chunks, rows * (chunk + 1) // chunks)


class Model(torch.nn.Module):
    def __init__(self, top_k):
        super().__init__()
        self.top_k = top_k
        self.threads = get_num_threads()

    def forward(self, gating):
        gating = gating.contiguous()
        rows, experts = gating.shape
        weights = gating.new_empty(rows, self.top_k)
        ids = torch.empty(rows, self.top_k, dtype=torch.int32)
        args = gating.data_ptr(), weights.data_ptr(), ids.data_ptr(), (rows, experts, self.top_k)
        if rows * experts < SERIAL_BELOW:
            _rows(*args, 0, rows)
        else:
            _parallel(*args, min(rows, self.threads))
        return weights, ids
