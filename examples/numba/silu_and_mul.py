"""SiLU and multiply for a CPU: y = silu(gate) · up, gate and up the halves of a row; bf16, float32 inside.

numba has no bf16, so rows are uint16: a shift decodes, an integer round-to-nearest-even encodes. Without SVML
`np.exp` is a library call per element, so the exponential is a polynomial of its own and the loop vectorises.
"""

import numpy as np
import torch
from numba import carray, get_num_threads, njit, prange, types
from numba.extending import intrinsic

SERIAL_BELOW = 1 << 16


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


@njit(cache=True, error_model="numpy")
def _row(gate, up, out):
    one = np.float32(1)
    for i in range(out.size):
        g = decode(gate[i])
        out[i] = encode(g / (one + exp(-g)) * decode(up[i]))


@njit(cache=True)
def _part(x, out, rows, width, first, last):
    """The output elements `first` to `last`, counted over all rows, so that one long row is shared too."""
    xs, outs = carray(_u16_at(x), (rows, 2 * width)), carray(_u16_at(out), (rows, width))
    while first < last:
        row, begin = first // width, first % width
        end = min(width, begin + last - first)
        _row(xs[row, begin:end], xs[row, width + begin : width + end], outs[row, begin:end])
        first += end - begin


@njit(cache=True, parallel=True)
def _parallel(x, out, rows, width, chunks):
    for chunk in prange(chunks):
        size = rows * width
        _part(x, out, rows, width, size * chunk // chunks, size * (chunk + 1) // chunks)


class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.threads = get_num_threads()

    def forward(self, x):
        x = x.contiguous()
        width = x.shape[-1] // 2
        out = x.new_empty(*x.shape[:-1], width)
        rows = out.numel() // max(width, 1)
        if rows * width < SERIAL_BELOW:
            _part(x.data_ptr(), out.data_ptr(), rows, width, 0, rows * width)
        else:
            _parallel(x.data_ptr(), out.data_ptr(), rows, width, self.threads)
        return out
