"""The bits of any dtype as numbers that numpy can compute with, and ULPs: the numbers that lie between two of them.

Types of up to 16 bits become float32, which holds each of their values; 32-bit integers become float64; float32 and
float64 stay as they are. 64-bit integers fit no float and stay integers. Floats are signs and magnitudes, and
magnitudes are in order as integers; −0.0 and +0.0 are no step apart.
"""

from __future__ import annotations

from functools import lru_cache
from math import inf, nan
from typing import Any

import numpy as np
from numpy.typing import NDArray

from karat.tensors.dtypes import Dtype, Layout, dtype_named
from karat.tensors.numpy_arrays import numpy_dtype

Bits = NDArray[np.uint8]
Values = NDArray[Any]


def number(layout: Layout, code: int) -> float:
    """What the bits of a small float mean."""
    fraction = code & ((1 << layout.mantissa) - 1)
    exponent = code >> layout.mantissa & ((1 << layout.exponent) - 1)
    sign_bit = 1 << (layout.mantissa + layout.exponent)
    sign = -1.0 if layout.signed and code & sign_bit else 1.0
    top = exponent == (1 << layout.exponent) - 1
    ones = fraction == (1 << layout.mantissa) - 1
    if layout.special == "ieee" and top:
        return nan if fraction else sign * inf
    if layout.special in {"nan_only", "all_ones"} and top and ones:
        return nan
    if layout.special == "negative_zero" and code == sign_bit:
        return nan
    if layout.special == "all_ones":  # an exponent and nothing else: no zero, no subnormals
        return 2.0 ** (exponent - layout.bias)
    if exponent == 0:
        return sign * fraction * 2.0 ** (1 - layout.bias - layout.mantissa)
    return sign * (1 + fraction / (1 << layout.mantissa)) * 2.0 ** (exponent - layout.bias)


@lru_cache(maxsize=64)
def table_of(name: str) -> NDArray[np.float32]:
    """The 256 numbers of a dtype whose elements take a byte; pairs of them if two share it."""
    of = dtype_named(name)
    codes = range(256)
    if name == "float4_e2m1fn_x2" and of.layout is not None:
        low = [number(of.layout, code & 15) for code in codes]
        high = [number(of.layout, code >> 4) for code in codes]
        return np.array(list(zip(low, high, strict=True)), np.float32)
    if of.layout is not None:
        mask = (1 << of.width) - 1
        return np.array([number(of.layout, code & mask) for code in codes], np.float32)
    if of.kind == "bool":
        return np.array([float(code != 0) for code in codes], np.float32)
    values = [code & ((1 << of.width) - 1) for code in codes]
    wraps = 1 << of.width - 1 if of.signed else 256
    return np.array([v - (1 << of.width) if v >= wraps else v for v in values], np.float32)


def work_dtype(name: str) -> np.dtype[Any] | None:
    """The float in which a real dtype is computed with; None for what is no real number or fits no float."""
    of = dtype_named(name)
    if of.bits == "|V16" or of.kind in {"opaque", "complex"}:
        return None
    if of.width == 64:
        return np.dtype(np.float64) if of.kind == "float" else None
    return np.dtype(np.float64 if of.kind == "int" and of.width == 32 else np.float32)


def per_element(name: str) -> int:
    """How many numbers one element holds: 2 for packed types."""
    return 2 if name == "float4_e2m1fn_x2" else 1


def decode(name: str, bits: Bits, out: Values) -> Values:
    """The numbers of `bits`: a view of them if they are floats of the right size, else `out` filled."""
    of = dtype_named(name)
    if name in {"float32", "float64"}:
        return bits.view(of.bits.replace("u", "f"))
    if of.itemsize == 1:
        table = table_of(name)
        view = out[: bits.size * table[0].size]
        np.take(table, bits, axis=0, out=view.reshape(-1, *table.shape[1:]), mode="clip")
        return view
    count = bits.size // of.itemsize
    view = out[:count]
    if name == "bfloat16":
        wide = view.view(np.uint32)
        np.copyto(wide, bits.view("<u2"))
        np.left_shift(wide, 16, out=wide)
        return view
    np.copyto(view, bits.view(f"<{'f' if of.kind == 'float' else 'iu'[not of.signed]}{of.itemsize}"))
    return view


def widened(name: str, bits: Bits) -> Values | None:
    """The numbers of `bits` in the widest type they need: float64, complex128, or a long double.

    A copy, of any numeric dtype, for arithmetic that takes its time. None if this machine has no
    arithmetic for the type: another platform's long double.
    """
    of = dtype_named(name)
    if of.bits == "|V16":
        kind = numpy_dtype(name)
        return None if kind is None else bits.view(kind)
    if of.kind == "complex":
        part = {2: "bfloat16" if name == "bcomplex32" else "float16", 4: "float32", 8: "float64"}
        parts = widened(part[of.itemsize // 2], bits)
        return None if parts is None else parts.view(np.complex128)
    work = work_dtype(name)
    if work is None:
        # 64 bits of mantissa where the machine has them: 2^53 + 1 is not 2^53, whatever it is compared with.
        return bits.view("<i8" if of.signed else "<u8").astype(np.longdouble)
    out = np.empty(bits.size // of.itemsize * per_element(name), work)
    return decode(name, bits, out).astype(np.float64)


def parts_of(of: Dtype, bits: Bits) -> NDArray[Any]:
    """The bits as one unsigned integer for each real number: two for a complex or packed element."""
    if of.name == "float4_e2m1fn_x2":
        return np.stack([bits & 15, bits >> 4], axis=1).reshape(-1)
    return bits.view(of.bits)


def distances(of: Dtype, expected: Bits, actual: Bits) -> NDArray[np.uint64]:
    """Steps from one to the other, element by element; what is no number gives a number all the same."""
    one, other = (parts_of(of, bits).astype(np.uint64) for bits in (expected, actual))
    if of.width < 8 * np.dtype(of.bits).itemsize:
        one, other = one & _mask(of.width), other & _mask(of.width)
    if not of.signed:
        return _apart(one, other)
    sign, size = np.uint64(of.width - 1), _mask(of.width - 1)
    crossing = (one ^ other) >> sign != 0
    one, other = one & size, other & size
    return np.where(crossing, one + other, _apart(one, other))


def most_steps(of: Dtype, expected: Bits, actual: Bits) -> int:
    if of.itemsize > 1 or of.name == "float4_e2m1fn_x2":
        return int(distances(of, expected, actual).max())
    ranks = _ranks(of.name)
    apart = np.take(ranks, expected) - np.take(ranks, actual)
    return max(int(apart.max()), -int(apart.min()))


@lru_cache(maxsize=32)
def _ranks(name: str) -> NDArray[np.int16]:
    """Of each of 256 codes: which number it is, counted from zero."""
    of = dtype_named(name)
    every = np.arange(256, dtype=np.uint8)
    steps = distances(of, np.zeros_like(every), every).astype(np.int16)
    negative = (every >> (of.width - 1) & 1).astype(bool) & of.signed
    return np.where(negative, -steps, steps)


def _mask(width: int) -> np.uint64:
    return np.uint64((1 << width) - 1)


def _apart(one: NDArray[np.uint64], other: NDArray[np.uint64]) -> NDArray[np.uint64]:
    return np.maximum(one, other) - np.minimum(one, other)
