"""The bits of any dtype as numbers that numpy can compute with, and ULPs: the numbers that lie between two of them.

Types of up to 16 bits become float32, which holds each of their values; 32-bit integers become float64; float32 and
float64 stay as they are. 64-bit integers fit no float and stay integers. Floats are signs and magnitudes, and
magnitudes are in order as integers; −0.0 and +0.0 are no step apart. `TensorBlocks` reads the bits of a tensor, wherever
they are.
"""

from __future__ import annotations

from functools import lru_cache
from math import inf, nan
from typing import Any

import numpy as np
from numpy.typing import NDArray

from karat.tensors.comparison import within
from karat.tensors.dtypes import Dtype, Layout, dtype_named, nbytes
from karat.tensors.numpy_arrays import numpy_dtype
from karat.tensors.tensor import Damaged, Reader, Tensor, TensorExtent

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


def distances(of: Dtype, expected: Bits, actual: Bits) -> NDArray[Any]:
    """Steps from one to the other, element by element; what is no number gives a number all the same."""
    size = np.dtype(of.bits).itemsize
    # In twice as many bits, where there are some, so that no sum overflows.
    one, other = (parts_of(of, bits).astype(f"u{min(8, 2 * size)}") for bits in (expected, actual))
    if of.width < 8 * size:
        one, other = one & (1 << of.width) - 1, other & (1 << of.width) - 1
    if not of.signed:
        return _apart(one, other)
    crossing = (one ^ other) >> of.width - 1 != 0
    below = (1 << of.width - 1) - 1
    one, other = one & below, other & below
    return np.where(crossing, one + other, _apart(one, other))


def _apart(one: NDArray[Any], other: NDArray[Any]) -> NDArray[Any]:
    return np.asarray(np.maximum(one, other) - np.minimum(one, other))


Either = Tensor | TensorExtent


class TensorBlocks:
    """The bytes of one side, for one thread, in blocks of up to so many bytes.

    What is not in memory is read into the same buffer again and again, because fresh memory is slow to touch.
    """

    def __init__(self, tensor: Either, block: int) -> None:
        self._reader: Reader | None = None
        self._elsewhere = tensor.reader(block) if isinstance(tensor, Tensor) else None
        if self._elsewhere is not None:
            return
        if isinstance(tensor, Tensor):
            self._whole: Bits = np.frombuffer(tensor.data, np.uint8)
        else:
            self._buffer = np.empty(min(block, tensor.extent.size), np.uint8)
            self._reader = tensor.extent.open()

    def block(self, start: int, stop: int) -> Bits:
        if self._elsewhere is not None:
            return np.asarray(self._elsewhere(start, stop))
        if self._reader is None:
            return self._whole[start:stop]
        found = self._buffer[: stop - start]
        self._reader.read_into(start, found.data)
        return found

    def close(self) -> None:
        if self._reader is not None:
            self._reader.close()


def is_seekable(tensor: Either) -> bool:
    """Whether several threads may read different parts at once."""
    return isinstance(tensor, Tensor) or tensor.extent.seekable


def require_whole(tensor: Either, name: str, side: str) -> None:
    """`Damaged` unless there are as many bytes as dtype and shape say."""
    expected = nbytes(tensor.dtype, tensor.shape)
    found = tensor.size if isinstance(tensor, Tensor) else tensor.extent.size
    if found != expected:
        what = f"{expected} bytes of {tensor.dtype} {list(tensor.shape)}"
        raise Damaged(f"{within(name)}expected {what} on the {side} side, found {found}")
