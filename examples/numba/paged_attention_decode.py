"""GQA decode over a paged cache on a CPU, bf16 or fp16 storage, float32 inside.

Memory decides: a worker takes one (sequence, kv head), walks its blocks once for the keys and once for the
values, decodes each block once and uses it for every query head of the group. Nothing is transposed: a key
block [d/8, 16, 8] is summed lane by lane over d/8 and folded at the end, a value block [d, 16] is summed lane
by lane over the blocks and folded once.
"""

import numpy as np
import torch
from numba import carray, get_num_threads, njit, prange, types
from numba.extending import intrinsic

PAGE = 16
PACK = 8
LANES = PAGE * PACK
SERIAL_BELOW = 1 << 16
SUM = {"reassoc", "nsz", "contract"}


def _pointer(kind):
    """A function that turns an address into a pointer to `kind`."""

    @intrinsic
    def at(typing, address):
        def generate(context, builder, signature, args):
            return builder.inttoptr(args[0], context.get_value_type(signature.return_type))

        return types.CPointer(kind)(types.intp), generate

    return at


_u16_at = _pointer(types.uint16)
_i32_at = _pointer(types.int32)


@njit(cache=True)
def decode(code):
    """The float32 whose upper half is the bf16 `code`."""
    return np.uint32(np.uint32(code) << np.uint32(16)).view(np.float32)


@njit(cache=True)
def encode(value):
    """The bf16 code of a float32, rounded to nearest even; every NaN becomes the quiet NaN."""
    bits = np.float32(value).view(np.uint32)
    odd = np.uint32(np.uint32(bits >> np.uint32(16)) & np.uint32(1))
    code = np.uint32(np.uint32(bits + np.uint32(0x7FFF)) + odd) >> np.uint32(16)
    return np.uint16(0x7FC0) if np.isnan(value) else np.uint16(code)


@njit(cache=True)
def decode_half(code):
    """The float32 of an IEEE fp16 code."""
    magnitude = np.uint32(code) & np.uint32(0x7FFF)
    sign = np.uint32(np.uint32(code) & np.uint32(0x8000)) << np.uint32(16)
    shifted = np.uint32(magnitude << np.uint32(13))
    normal = np.uint32(shifted + np.uint32(0x38000000))
    special = np.uint32(shifted + np.uint32(0x70000000))
    small = np.float32(np.float32(np.int32(magnitude)) * np.float32(2.0**-24)).view(np.uint32)
    bits = np.uint32(small) if magnitude < np.uint32(0x400) else np.uint32(normal)
    bits = np.uint32(special) if magnitude >= np.uint32(0x7C00) else np.uint32(bits)
    return np.uint32(bits | sign).view(np.float32)


@njit(cache=True)
def encode_half(value):
    """The fp16 code of a float32, rounded to nearest even; every NaN becomes the quiet NaN."""
    bits = np.float32(value).view(np.uint32)
    sign = np.uint32(np.uint32(bits >> np.uint32(16)) & np.uint32(0x8000))
    bits = np.uint32(bits & np.uint32(0x7FFFFFFF))
    rest = np.uint32(np.uint32(np.uint32(bits >> np.uint32(13)) & np.uint32(1)) + np.uint32(0xFFF))
    half = np.float32(0.5)  # added, it rounds the mantissa of a value below 2^-14 where fp16 ends
    small = np.float32(np.uint32(bits).view(np.float32) + half).view(np.uint32) - np.uint32(0x3F000000)
    normal = np.uint32(np.uint32(bits - np.uint32(0x38000000)) + rest) >> np.uint32(13)
    code = np.uint32(small) if bits < np.uint32(0x38800000) else np.uint32(normal)
    code = np.uint32(0x7C00) if bits >= np.uint32(0x47800000) else np.uint32(code)
    code = np.uint32(0x7E00) if bits > np.uint32(0x7F800000) else np.uint32(code)
    return np.uint16(code | sign)


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


@njit(cache=True)
def _load(codes, half, out):
    if half:
        for i in range(codes.size):
            out[i] = decode_half(codes[i])
    else:
        for i in range(codes.size):
            out[i] = decode(codes[i])


@njit(cache=True, fastmath=SUM)
def _scores(keys, query, lanes, out):
    """The dot products of 16 tokens with a query: both [d/8, 16 · 8], the query 16 times over."""
    lanes[:] = np.float32(0)
    even = query.shape[0] // 4 * 4
    for c in range(0, even, 4):
        k0, k1, k2, k3 = keys[c], keys[c + 1], keys[c + 2], keys[c + 3]
        q0, q1, q2, q3 = query[c], query[c + 1], query[c + 2], query[c + 3]
        for i in range(LANES):
            lanes[i] += k0[i] * q0[i] + k1[i] * q1[i] + k2[i] * q2[i] + k3[i] * q3[i]
    for c in range(even, query.shape[0]):
        k0, q0 = keys[c], query[c]
        for i in range(LANES):
            lanes[i] += k0[i] * q0[i]
    for t in range(PAGE):
        line = lanes[t * PACK : (t + 1) * PACK]
        out[t] = ((line[0] + line[1]) + (line[2] + line[3])) + ((line[4] + line[5]) + (line[6] + line[7]))


@njit(cache=True)
def _ordered(bits):
    """Float bits to an integer of the same order, and back again."""
    return np.int32(bits ^ (np.int32(bits >> np.int32(31)) & np.int32(0x7FFFFFFF)))


@njit(cache=True)
def _row_max(row):
    """The largest of `row`, NaN above all; as an integer, whose maximum vectorises."""
    best = np.int32(-0x80000000)
    for j in range(row.size):
        best = max(best, _ordered(np.float32(row[j]).view(np.int32)))
    return np.int32(_ordered(best)).view(np.float32)


@njit(cache=True, fastmath=SUM)
def _exponentials(row, top):
    """exp(row - top), in place, and the sum."""
    total = np.float32(0)
    for j in range(row.size):
        row[j] = exp(row[j] - top)
        total += row[j]
    return total


@njit(cache=True, fastmath=SUM)
def _add_values(acc, values, weights):
    """acc [d, 16] += values [d, 16] · weights [16] over four pages, token by token; two rows share a weight."""
    w0, w1, w2, w3 = weights[:16], weights[16:32], weights[32:48], weights[48:64]
    v0, v1, v2, v3 = values[0], values[1], values[2], values[3]
    for c in range(0, acc.shape[0], 2):
        lower, upper = acc[c], acc[c + 1]
        a0, a1, a2, a3 = v0[c], v1[c], v2[c], v3[c]
        b0, b1, b2, b3 = v0[c + 1], v1[c + 1], v2[c + 1], v3[c + 1]
        for t in range(PAGE):
            x0, x1, x2, x3 = w0[t], w1[t], w2[t], w3[t]
            lower[t] += a0[t] * x0 + a1[t] * x1 + a2[t] * x2 + a3[t] * x3
            upper[t] += b0[t] * x0 + b1[t] * x1 + b2[t] * x2 + b3[t] * x3


@njit(cache=True)
def _store(acc, share, half, out):
    for c in range(out.size):
        line = acc[c]
        total = np.float32(0)
        for t in range(PAGE):
            total += line[t]
        out[c] = encode_half(total * share) if half else encode(total * share)


@njit(cache=True, error_model="numpy")
def _group(query, keys, values, table, length, half, out):
    """The outputs [g, d] of the query heads that share a kv head; keys and values are that head's pages."""
    group, size = query.shape
    pages = (length + PAGE - 1) // PAGE
    line, wide = np.empty(size, np.float32), np.empty((group, size // PACK, LANES), np.float32)
    for g in range(group):
        _load(query[g], half, line)
        for c in range(size // PACK):
            for i in range(LANES):
                wide[g, c, i] = line[c * PACK + i % PACK] / np.sqrt(np.float32(size))
    scores = np.zeros((group, (pages + 3) // 4 * 4 * PAGE), np.float32)
    block, lanes = np.empty(size * PAGE, np.float32), np.empty(LANES, np.float32)
    for page in range(pages):
        _load(keys[table[page]], half, block)
        for g in range(group):
            _scores(block.reshape(size // PACK, LANES), wide[g], lanes, scores[g, page * PAGE : (page + 1) * PAGE])
    total = np.zeros(group, np.float32)
    for g in range(group):
        scores[g, length:] = np.float32(0)
        if length > 0:
            total[g] = _exponentials(scores[g, :length], _row_max(scores[g, :length]))
    acc, four = np.zeros((group, size, PAGE), np.float32), np.zeros((4, size, PAGE), np.float32)
    for page in range(0, pages, 4):
        for i in range(4):
            if page + i < pages:
                _load(values[table[page + i]], half, four[i].reshape(size * PAGE))
            if (page + i + 1) * PAGE > length:  # what lies beyond the end may be anything, NaN too
                four[i, :, max(0, length - (page + i) * PAGE) :] = np.float32(0)
        for g in range(group):
            _add_values(acc[g], four, scores[g, page * PAGE : (page + 4) * PAGE])
    for g in range(group):
        share = np.float32(1) / total[g] if length > 0 else np.float32(0)
        _store(acc[g], share, half, out[g])


@njit(cache=True)
def _work(query, keys, values, tables, lengths, out, sizes, half, worker, workers):
    sequences, heads, kv_heads, size, pages, limit = sizes
    group = heads // kv_heads
    qs = carray(_u16_at(query), (sequences, kv_heads, group, size))
    outs = carray(_u16_at(out), (sequences, kv_heads, group, size))
    ks = carray(_u16_at(keys), (pages, kv_heads, size * PAGE))
    vs = carray(_u16_at(values), (pages, kv_heads, size * PAGE))
    table, length = carray(_i32_at(tables), (sequences, limit)), carray(_i32_at(lengths), sequences)
    for item in range(worker, sequences * kv_heads, workers):
        s, h = item // kv_heads, item % kv_heads
        _group(qs[s, h], ks[:, h], vs[:, h], table[s], length[s], half, outs[s, h])


@njit(cache=True, parallel=True)
def _parallel(query, keys, values, tables, lengths, out, sizes, half, workers):
    for worker in prange(workers):
        _work(query, keys, values, tables, lengths, out, sizes, half, worker, workers)


class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.threads = get_num_threads()

    def forward(self, query, key_cache, value_cache, block_tables, context_lens):
        tensors = [t.contiguous() for t in (query, key_cache, value_cache, block_tables, context_lens)]
        out = torch.empty_like(tensors[0])
        addresses = [t.data_ptr() for t in (*tensors, out)]
        (sequences, heads, size), (pages, kv_heads) = query.shape, key_cache.shape[:2]
        limit = block_tables.shape[1]
        sizes = (sequences, heads, kv_heads, size, pages, limit)
        half = query.dtype is torch.float16
        if sequences * kv_heads * limit * size < SERIAL_BELOW:
            _work(*addresses, sizes, half, 0, 1)
        else:
            _parallel(*addresses, sizes, half, self.threads)
        return out
