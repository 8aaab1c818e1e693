"""The fp8 e4m3 type of a device, codes of it, and whether codes and scales are right for what they stand for."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from roofmark.operators.draw import Draw

FN, FNUZ = torch.float8_e4m3fn, torch.float8_e4m3fnuz
# The code of NaN in `fn`, without its sign.
NAN = 0x7F
# Zeros have no scale of their own: deployed kernels store one for a largest value of anything from 0 to this.
ZERO_SCALE = 1 / 512


def kind_of(architecture: str) -> torch.dtype:
    """The type that the matrix units of an AMD architecture take: `fnuz` on gfx94x, `fn` after it."""
    return FNUZ if architecture.startswith("gfx94") else FN


def kind(device: str | torch.device) -> torch.dtype:
    """The fp8 e4m3 type of a device: `fn`, but on gfx94x `fnuz` (largest 240, NaN in the place of -0)."""
    if torch.device(device).type != "cuda" or torch.version.hip is None:
        return FN
    return kind_of(torch.cuda.get_device_properties(device).gcnArchName)


def largest(dtype: torch.dtype) -> float:
    """The largest value: 448 of `fn`, 240 of `fnuz`."""
    return float(torch.finfo(dtype).max)


def rounded(values: Tensor, dtype: torch.dtype) -> Tensor:
    """The nearest values of the type, ties to even and saturating; float64 comes by way of float32."""
    top = largest(dtype)
    return values.clamp(-top, top).to(dtype).to(values.dtype)


def wide(codes: Tensor) -> Tensor:
    """What codes stand for, float32: on a CPU ten times as fast as torch's own way, which takes them one by one."""
    if codes.dtype != FN or codes.device.type != "cpu":
        return codes.float()
    bits = codes.contiguous().view(torch.int8)
    sizes = bits & 0x7F
    # sign, exponent and fraction in their places in a float16, whose exponents are larger by 8
    half = bits.to(torch.int16).bitwise_left_shift_(7).bitwise_and_(~0x4000).view(torch.float16)
    values = half.float().mul_(256.0)
    return values.masked_fill_(sizes == NAN, torch.nan) if sizes.numel() and int(sizes.max()) == NAN else values


def codes(draw: Draw, name: str, shape: Sequence[int], dtype: torch.dtype) -> Tensor:
    """Codes of both signs and the 64 largest magnitudes, eight octaves of them, each equally likely."""
    return signed(draw.bits(name, shape, torch.uint8).bitwise_and_(0xBF), dtype)


def signed(bits: Tensor, dtype: torch.dtype) -> Tensor:
    """Codes from uint8 `bits`, in place: the highest is the sign, the lowest six choose among the 64 magnitudes."""
    return bits.bitwise_and_(0xBF).add_(_smallest(dtype)).view(dtype)


def codes_rms(dtype: torch.dtype) -> float:
    """The root mean square of what `codes` draws."""
    magnitudes = torch.arange(64, dtype=torch.uint8).add_(_smallest(dtype)).view(dtype)
    return math.sqrt(float(magnitudes.double().square().mean()))


def largest_code(dtype: torch.dtype) -> int:
    """The code of the largest value."""
    return _smallest(dtype) + 63


def _smallest(dtype: torch.dtype) -> int:
    return 0x40 if dtype == FNUZ else 0x3F  # 0x7f is 240 in `fnuz` and NaN in `fn`


def drop_nan(bits: Tensor, dtype: torch.dtype) -> None:
    """Makes 0 of uint8 codes in place that would be -0 in `fn` and are NaN in `fnuz`."""
    if dtype == FNUZ:
        bits[bits == 0x80] = 0


@dataclass(frozen=True)
class Magnitudes:
    """What is to be quantised: |y| lies between `low` and `high`, `negative` where y is; [rows, groups, width].

    Where rounding inside a right kernel may go either way the two differ, else they are one tensor.
    """

    low: Tensor
    high: Tensor
    negative: Tensor

    @classmethod
    def of(cls, values: Tensor) -> Magnitudes:
        """Those of values known exactly, float64."""
        size = values.abs()
        return cls(size, size, values < 0)


def judge(y: Magnitudes, codes: Tensor, scales: Tensor, *, scale_tolerance: float, tie: float) -> tuple[Tensor, Tensor]:
    """Which scales [rows, groups] and which codes [rows, groups, width] are right.

    A scale is max |y| / `largest` within `scale_tolerance`, relative. A code is that of y / scale with the scale as
    it was stored, or the neighbour's where y / scale lies within `tie`, relative, of the middle between the two.
    So it is at most one code from the one under the exact scale, and code · scale is off from y by at most
    half the distance of two codes, `tie` and what the scale was allowed.
    """
    top = largest(codes.dtype)
    most, stored = y.high.amax(-1), scales.double()
    low = y.low.amax(-1) * ((1 - scale_tolerance) / top)
    high = torch.where(most > 0, most, ZERO_SCALE) * ((1 + scale_tolerance) / top)
    right_scales = (stored >= low) & (stored <= high)
    divisor = torch.where(right_scales & (most > 0), stored, 1.0).unsqueeze(-1)
    least = rounded(y.low / divisor * (1 - tie), codes.dtype)
    most_of = rounded(y.high / divisor * (1 + tie), codes.dtype)
    got = wide(codes).double()
    got = torch.where(y.negative, -got, got)
    return right_scales, (got >= least) & (got <= most_of)  # NaN is neither


def fault(y: Magnitudes, codes: Tensor, scales: Tensor, index: Tensor, *, scale_tolerance: float, tie: float) -> str:
    """The first wrong scale or code in words, its row as `index` numbers it; "" where all are right."""
    right_scales, right_codes = judge(y, codes, scales, scale_tolerance=scale_tolerance, tie=tie)
    if not bool(right_scales.all()):
        row, group = (int(n) for n in (~right_scales).nonzero()[0])
        want = float(y.high[row, group].amax()) / largest(codes.dtype)
        return f"scale[{int(index[row])}, {group}] is {scales[row, group].item():.6g}, should be {want:.6g}"
    if not bool(right_codes.all()):
        row, group, place = (int(n) for n in (~right_codes).nonzero()[0])
        column = group * codes.shape[2] + place
        got, size = codes[row, group, place].item(), float(y.high[row, group, place])
        wrong = int((~right_codes).sum())
        want = math.copysign(size, -1.0 if bool(y.negative[row, group, place]) else 1.0)
        return (
            f"q[{int(index[row])}, {column}] is {got:.6g}, should be {want:.6g} over the scale"
            f" {scales[row, group].item():.6g}; {wrong} of {right_codes.numel()} codes checked are wrong"
        )
    return ""
