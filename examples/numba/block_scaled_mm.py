"""Block-scaled fp8 matrix product on a CPU: a · bᵀ with a scale per 128 columns of a, per 128x128 block of b.

Codes are decoded by integer arithmetic (a table look-up would be a gather) and multiplied by their scale at
once, so what remains is a float32 product. A few rows are dot products along b, which is then read once and
is all that counts. Many rows go through `_update`, with tiles of b decoded once for 384 rows of a; its inner
loop is written in LLVM terms, since no loop in Python keeps a tile of sums in registers.
"""

import numpy as np
import torch
from llvmlite import ir
from llvmlite.binding import get_host_cpu_features
from numba import carray, get_num_threads, njit, prange, types
from numba.extending import intrinsic

ROWS = 384
COLUMNS = 128
FEW = 12
SERIAL_BELOW = 1 << 19
SUM = {"reassoc", "nsz", "contract"}


def _pointer(kind):
    """A function that turns an address into a pointer to `kind`."""

    @intrinsic
    def at(typing, address):
        def generate(context, builder, signature, args):
            return builder.inttoptr(args[0], context.get_value_type(signature.return_type))

        return types.CPointer(kind)(types.intp), generate

    return at


_u8_at = _pointer(types.uint8)
_u16_at = _pointer(types.uint16)
_f32_at = _pointer(types.float32)


@njit(cache=True)
def decode_fp8(code):
    """The float32 of an e4m3fn code: 1 sign, 4 exponent (bias 7), 3 mantissa bits; 0x7F is NaN."""
    magnitude = np.uint32(code) & np.uint32(0x7F)
    sign = np.uint32(np.uint32(code) & np.uint32(0x80)) << np.uint32(24)
    normal = np.uint32(np.uint32(magnitude << np.uint32(20)) + np.uint32(0x3C000000))
    small = np.float32(np.float32(np.int32(magnitude)) * np.float32(0.001953125)).view(np.uint32)
    bits = np.uint32(small) if magnitude < np.uint32(8) else np.uint32(normal)
    bits = np.uint32(0x7FC00000) if magnitude == np.uint32(0x7F) else np.uint32(bits)
    return np.uint32(bits | sign).view(np.float32)


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
def _decode_row(codes, scale, out):
    for i in range(codes.size):
        out[i] = decode_fp8(codes[i]) * scale


@njit(cache=True, fastmath=SUM)
def _dot(a, b):
    total = np.float32(0)
    for i in range(a.size):
        total += a[i] * b[i]
    return total


@njit(cache=True)
def _few_columns(a, b, scales, out, first, last, group_n):
    """Output columns `first` to `last` for the few rows of `a` [k/group, rows, group]."""
    blocks, _, group = a.shape
    line = np.empty(group, np.float32)
    sums = np.empty(out.shape[0], np.float32)
    for j in range(first, last):
        sums[:] = np.float32(0)
        for block in range(blocks):
            _decode_row(b[j, block * group : (block + 1) * group], scales[j // group_n, block], line)
            for i in range(sums.size):
                sums[i] += _dot(a[block, i], line)
        for i in range(sums.size):
            out[i, j] = encode(sums[i])


@njit(cache=True)
def _tile(a, b, scales, out, row, rows, first, group_n, room):
    """The output tile of `rows` rows from `row` on and up to 128 columns from `first` on."""
    blocks, padded, group = a.shape
    columns = min(COLUMNS, b.shape[0] - first)
    width = -(-columns // LANES) * LANES
    acc = room[: padded * width].reshape(padded, width)
    flipped = room[padded * width : (padded + group) * width].reshape(group, width)
    lines = np.zeros((LANES, group), np.float32)
    acc[:] = np.float32(0)
    for block in range(blocks):
        for at in range(0, columns, LANES):
            for n in range(first + at, first + min(at + LANES, columns)):
                codes = b[n, block * group : (block + 1) * group]
                _decode_row(codes, scales[n // group_n, block], lines[n - first - at])
            _flip(lines, flipped, at)
        _update(acc, a[block], flipped)
    for i in range(rows):
        line_in, line_out = acc[i], out[row + i, first : first + columns]
        for j in range(columns):
            line_out[j] = encode(line_in[j])


@njit(cache=True)
def _load_work(a, scales, wide, row, rows, sizes, block):
    (m, _, k), group = sizes, wide.shape[2]
    codes, factors = carray(_u8_at(a), (m, k)), carray(_f32_at(scales), (m, k // group))
    for i in range(rows):
        line = codes[row + i, block * group : (block + 1) * group]
        _decode_row(line, factors[row + i, block], wide[block, i])
    wide[block, rows:] = np.float32(0)


@njit(cache=True)
def _work(wide, b, scales, out, row, rows, sizes, group_n, worker, workers):
    """The share of one worker in the rows `row` to `row + rows`, whose decoded form is `wide`."""
    (m, n, k), group = sizes, wide.shape[2]
    bs, outs = carray(_u8_at(b), (n, k)), carray(_u16_at(out), (m, n))
    factors = carray(_f32_at(scales), (-(-n // group_n), k // group))
    if m <= FEW:
        _few_columns(wide, bs, factors, outs, n * worker // workers, n * (worker + 1) // workers, group_n)
        return
    room = np.empty((wide.shape[1] + group) * COLUMNS, np.float32)
    for first in range(worker * COLUMNS, n, workers * COLUMNS):
        _tile(wide, bs, factors, outs, row, rows, first, group_n, room)


@njit(cache=True)
def _room_for_a(sizes, group):
    return np.empty((sizes[2] // group, -(-min(ROWS, sizes[0]) // HEIGHT) * HEIGHT, group), np.float32)


@njit(cache=True)
def _serial(a, b, a_scales, b_scales, out, sizes, groups):
    wide = _room_for_a(sizes, groups[1])
    for row in range(0, sizes[0], ROWS):
        rows = min(ROWS, sizes[0] - row)
        for block in range(wide.shape[0]):
            _load_work(a, a_scales, wide, row, rows, sizes, block)
        _work(wide, b, b_scales, out, row, rows, sizes, groups[0], 0, 1)


@njit(cache=True, parallel=True)
def _parallel(a, b, a_scales, b_scales, out, sizes, groups, workers):
    wide = _room_for_a(sizes, groups[1])
    for row in range(0, sizes[0], ROWS):
        rows = min(ROWS, sizes[0] - row)
        for block in prange(wide.shape[0]):
            _load_work(a, a_scales, wide, row, rows, sizes, block)
        for worker in prange(workers):
            _work(wide, b, b_scales, out, row, rows, sizes, groups[0], worker, workers)


class Model(torch.nn.Module):
    def __init__(self, group_n, group_k):
        super().__init__()
        self.groups = (group_n, group_k)
        self.threads = get_num_threads()

    def forward(self, a, b, a_scales, b_scales):
        a, b = a.contiguous(), b.contiguous()
        a_scales, b_scales = a_scales.contiguous(), b_scales.contiguous()
        (m, k), n = a.shape, b.shape[0]
        out = torch.empty(m, n, dtype=torch.bfloat16)
        tensors = a.data_ptr(), b.data_ptr(), a_scales.data_ptr(), b_scales.data_ptr(), out.data_ptr()
        if m * n * k < SERIAL_BELOW:
            _serial(*tensors, (m, n, k), self.groups)
        else:
            _parallel(*tensors, (m, n, k), self.groups, self.threads)
        return out
