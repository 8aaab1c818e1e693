"""Full attention over packed sequences on a CPU: flash attention in float32 over bf16 storage.

A worker takes a block of 96 queries of one head and walks over the keys in tiles of 128. Each tile is decoded
once into float32, keys transposed, so that both products are `_update`. Its innermost loop is written in LLVM
terms, since no loop in Python keeps a tile of sums in registers. The softmax is online.
"""

import numpy as np
import torch
from llvmlite import ir
from llvmlite.binding import get_host_cpu_features
from numba import carray, get_num_threads, njit, prange, types
from numba.extending import intrinsic

QUERIES = 96
KEYS = 128
SERIAL_BELOW = 1 << 20
SUM = {"reassoc", "nsz", "contract"}


@intrinsic
def _u16_at(typing, address):
    """The address as a pointer to uint16."""

    def generate(context, builder, signature, args):
        return builder.inttoptr(args[0], context.get_value_type(signature.return_type))

    return types.CPointer(types.uint16)(types.intp), generate


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


FEATURES = get_host_cpu_features()
LANES = 16 if FEATURES.get("avx512f") else 8 if FEATURES.get("avx2") else 4
STRIP = LANES * (2 if LANES == 8 else 4)  # columns of a full register tile: 16 registers hold half of 32
HEIGHT = 6  # its rows


def _register_tile(vectors):
    """A function: acc += a @ b for HEIGHT rows and `vectors` vectors of columns, summed in registers.

    Arguments: address and row length of acc, of a, of b, then the depth, which is at least 1.
    """
    lane, index = ir.FloatType(), ir.IntType(64)
    vector = ir.VectorType(lane, LANES)

    def at(builder, base, offset, kind):
        offset = ir.Constant(index, 4 * offset) if isinstance(offset, int) else builder.shl(offset, two)
        return builder.inttoptr(builder.add(base, offset), kind.as_pointer())

    two = ir.Constant(index, 2)

    def generate(context, builder, signature, args):
        acc, acc_row, a, a_row, b, b_row, depth = args
        tile = [(r, v) for r in range(HEIGHT) for v in range(vectors)]
        steps = [ir.Constant(index, 4 * r) for r in range(HEIGHT)]
        rows = [builder.add(acc, builder.mul(acc_row, s)) for s in steps]
        lines = [builder.add(a, builder.mul(a_row, s)) for s in steps]
        before = [builder.load(at(builder, rows[r], v * LANES, vector), align=4) for r, v in tile]
        entry, body = builder.block, builder.append_basic_block("depth")
        builder.branch(body)
        builder.position_at_end(body)
        step, line = builder.phi(index), builder.phi(index)
        sums = [builder.phi(vector) for _ in tile]
        right = [builder.load(at(builder, line, v * LANES, vector), align=4) for v in range(vectors)]
        after = []
        for r in range(HEIGHT):
            value = builder.load(at(builder, lines[r], step, lane), align=4)
            one = builder.insert_element(ir.Constant(vector, ir.Undefined), value, ir.IntType(32)(0))
            left = builder.shuffle_vector(one, one, ir.Constant(ir.VectorType(ir.IntType(32), LANES), None))
            for v in range(vectors):
                product = builder.fmul(left, right[v], flags=("contract",))
                after.append(builder.fadd(product, sums[r * vectors + v], flags=("contract",)))
        next_step = builder.add(step, ir.Constant(index, 1))
        for phi, first, later in [
            (step, ir.Constant(index, 0), next_step),
            (line, b, builder.add(line, builder.shl(b_row, two))),
            *zip(sums, before, after, strict=True),
        ]:
            phi.add_incoming(first, entry)
            phi.add_incoming(later, body)
        done = builder.append_basic_block("done")
        builder.cbranch(builder.icmp_signed("<", next_step, depth), body, done)
        builder.position_at_end(done)
        for (r, v), value in zip(tile, after, strict=True):
            builder.store(value, at(builder, rows[r], v * LANES, vector), align=4)
        return context.get_dummy_value()

    @intrinsic
    def run(typing, acc, acc_row, a, a_row, b, b_row, depth):
        return types.void(*[types.intp] * 7), generate

    return run


_full = _register_tile(STRIP // LANES)
_narrow = _register_tile(1)


@njit(cache=True)
def _update(acc, a, b):
    """acc += a @ b, contiguous [rows, n], [rows, k], [k, n]; rows a multiple of HEIGHT, n of LANES, k > 0."""
    rows, width = acc.shape
    depth = b.shape[0]
    to, left, right = acc.ctypes.data, a.ctypes.data, b.ctypes.data
    j = 0
    while j < width:
        full = j + STRIP <= width
        for i in range(0, rows, HEIGHT):
            target, source = to + 4 * (i * width + j), left + 4 * i * depth
            if full:
                _full(target, width, source, depth, right + 4 * j, width, depth)
            else:
                _narrow(target, width, source, depth, right + 4 * j, width, depth)
        j += STRIP if full else LANES


@njit(cache=True)
def _flip(lines, out, at):
    """Columns `at` on of `out` become the LANES rows of `lines`: whole cache lines are written, once."""
    for c in range(out.shape[0]):
        row = out[c]
        for i in range(LANES):
            row[at + i] = lines[i, c]


@njit(cache=True)
def _ordered(bits):
    """Float bits to an integer of the same order, and back again."""
    return np.int32(bits ^ (np.int32(bits >> np.int32(31)) & np.int32(0x7FFFFFFF)))


@njit(cache=True)
def _row_max(row, least):
    """The largest of `row` and `least`, NaN above all; as an integer, whose maximum vectorises."""
    best = _ordered(np.float32(least).view(np.int32))
    for j in range(row.size):
        best = max(best, _ordered(np.float32(row[j]).view(np.int32)))
    return np.int32(_ordered(best)).view(np.float32)


@njit(cache=True, fastmath=SUM)
def _exponentials(row, top):
    total = np.float32(0)
    for j in range(row.size):
        row[j] = exp(row[j] - top)
        total += row[j]
    return total


@njit(cache=True)
def _load(source, head, first, count, out, factor):
    """Rows `first` on of one head into `out` [rows, width], zeros beyond `count` and beyond the head."""
    size = source.shape[2]
    out[:] = np.float32(0)
    for i in range(count):
        row, target = source[first + i, head], out[i]
        for c in range(size):
            target[c] = decode(row[c]) * factor


@njit(cache=True)
def _load_transposed(source, head, first, count, out, lines):
    for at in range(0, out.shape[1], LANES):
        _load(source, head, first + at, max(0, min(LANES, count - at)), lines, np.float32(1))
        _flip(lines, out, at)


@njit(cache=True)
def _softmax_step(scores, count, top, total, acc):
    """Scores of a tile to weights, in place; the running maximum, sum and accumulator follow."""
    for i in range(scores.shape[0]):
        row = scores[i]
        row[count:] = -np.inf
        best = _row_max(row, top[i])
        shrink = exp(top[i] - best)
        top[i] = best
        total[i] = total[i] * shrink + _exponentials(row, best)
        if shrink != np.float32(1):
            line = acc[i]
            for c in range(line.size):
                line[c] *= shrink


@njit(cache=True, error_model="numpy")
def _block(q, k, v, out, head, begin, end, first, room):
    """The output of up to QUERIES queries from `first` on; the sequence is rows `begin` to `end`."""
    size = q.shape[2]
    width = -(-size // LANES) * LANES
    queries = min(QUERIES, end - first)
    rows = -(-queries // HEIGHT) * HEIGHT
    keys = min(KEYS, -(-(end - begin) // LANES) * LANES)
    cut = np.cumsum(np.array([rows * width, rows * width, rows * keys, keys * width, keys * width]))
    block = room[: cut[0]].reshape(rows, width)
    acc = room[cut[0] : cut[1]].reshape(rows, width)
    scores = room[cut[1] : cut[2]].reshape(rows, keys)
    flipped = room[cut[2] : cut[3]].reshape(width, keys)
    values = room[cut[3] : cut[4]].reshape(keys, width)
    lines = np.empty((LANES, width), np.float32)
    top, total = np.full(rows, -np.inf, np.float32), np.zeros(rows, np.float32)
    _load(q, head, first, queries, block, np.float32(1) / np.sqrt(np.float32(size)))
    acc[:] = np.float32(0)
    for at in range(begin, end, keys):
        count = min(keys, end - at)
        _load_transposed(k, head, at, count, flipped, lines)
        _load(v, head, at, count, values, np.float32(1))
        scores[:] = np.float32(0)
        _update(scores, block, flipped)
        _softmax_step(scores, count, top, total, acc)
        _update(acc, scores, values)
    for i in range(queries):
        line, target, share = acc[i], out[first + i, head], np.float32(1) / total[i]
        for c in range(size):
            target[c] = encode(line[c] * share)


@njit(cache=True)
def _plan(bounds):
    """Begin, end and first query of every block of QUERIES queries."""
    blocks = 0
    for s in range(bounds.size - 1):
        blocks += (bounds[s + 1] - bounds[s] + QUERIES - 1) // QUERIES
    plan = np.empty((blocks, 3), np.int64)
    at = 0
    for s in range(bounds.size - 1):
        for first in range(bounds[s], bounds[s + 1], QUERIES):
            plan[at, 0], plan[at, 1], plan[at, 2] = bounds[s], bounds[s + 1], first
            at += 1
    return plan


@njit(cache=True)
def _work(q, k, v, out, shape, plan, worker, workers):
    """Every `workers`-th item from `worker` on, so that long sequences are shared evenly."""
    heads, width = shape[1], -(-shape[2] // LANES) * LANES
    room = np.empty(2 * QUERIES * width + QUERIES * KEYS + 2 * KEYS * width, np.float32)
    qs, ks, vs = carray(_u16_at(q), shape), carray(_u16_at(k), shape), carray(_u16_at(v), shape)
    outs = carray(_u16_at(out), shape)
    for item in range(worker, len(plan) * heads, workers):
        line = plan[item // heads]
        _block(qs, ks, vs, outs, item % heads, line[0], line[1], line[2], room)


@njit(cache=True, parallel=True)
def _parallel(q, k, v, out, shape, plan, workers):
    for worker in prange(workers):
        _work(q, k, v, out, shape, plan, worker, workers)


class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.threads = get_num_threads()

    def forward(self, q, k, v, cu_seqlens):
        q, k, v = q.contiguous(), k.contiguous(), v.contiguous()
        out = torch.empty_like(q)
        args = q.data_ptr(), k.data_ptr(), v.data_ptr(), out.data_ptr(), tuple(q.shape)
        plan = _plan(cu_seqlens.numpy())
        if q.numel() * q.shape[0] <= SERIAL_BELOW * (cu_seqlens.numel() - 1):  # by the mean length
            _work(*args, plan, 0, 1)
        else:
            _parallel(*args, plan, self.threads)
        return out
