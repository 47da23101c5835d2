"""The statistics of one tensor: what a person can tell apart at a glance, over its finite elements.

Sums are taken in float64, block by block in buffers that are used again, so that memory does not grow.
Complex numbers have no order and no mean worth a glance: an l2 and counts alone.
"""

from __future__ import annotations

from contextlib import closing
from fractions import Fraction
from math import inf, ldexp, prod, sqrt
from typing import Any

import msgspec
import numpy as np

from karat.tensors.bits import Either, TensorBlocks, Values, decode, per_element, require_whole, widened, work_dtype
from karat.tensors.comparison import Statistics
from karat.tensors.device.on_device import DeviceTensor, measure_on_device
from karat.tensors.dtypes import dtype_named
from karat.tensors.kernels import dot, has_arithmetic
from karat.tensors.tally import Sum, as_float, scaled
from karat.tensors.tensor import Tensor

_CHUNK = 1 << 17


def statistics(tensor: Either, name: str = "tensor") -> Statistics:
    """The statistics; `Damaged` if the bytes are not there."""
    dtype = dtype_named(tensor.dtype)
    if not has_arithmetic(dtype):
        return Statistics()
    require_whole(tensor, name, "only")
    if isinstance(tensor, DeviceTensor) and (found := measure_on_device(tensor, dtype)) is not None:
        return found
    ordered, size = dtype.kind != "complex", _CHUNK * dtype.itemsize
    work = np.dtype(np.float64) if dtype.kind == "int" and dtype.width == 64 else work_dtype(dtype.name)
    count = min(_CHUNK, prod(tensor.shape)) * per_element(dtype.name)
    narrow, wide = np.empty(count, work or np.uint8), np.empty(count)
    finite = nan = infinite = 0
    low, high, total, squares = inf, -inf, Sum(), Sum()
    with closing(TensorBlocks(tensor, size)) as side, np.errstate(all="ignore"):
        for at in range(0, end := prod(tensor.shape) * dtype.itemsize, size):
            bits = side.block(at, min(end, at + size))
            values: Any = widened(dtype.name, bits) if work is None else decode(dtype.name, bits, narrow)
            if values.dtype.itemsize < 8:
                np.copyto(wide[: values.size], values)
                values = wide[: values.size]
            fine = np.isfinite(values)
            if not fine.all():
                missing = int(np.count_nonzero(np.isnan(values)))
                nan += missing
                infinite += values.size - int(np.count_nonzero(fine)) - missing
                values = values[fine]
            if not values.size:
                continue
            finite += values.size
            if ordered:
                least, most = values.min(), values.max()
                low, high = min(low, float(least)), max(high, float(most))
                parts, exponent = scaled(values, max(-least, most))
            else:
                parts, exponent = scaled(np.concatenate([values.real, values.imag]))
            total.add(float(parts.sum()), exponent)
            squares.add(dot(parts, parts), 2 * exponent)
    counted = Statistics(nan=nan, inf=infinite, l2=root(squares.value()) if finite else None)
    if not finite or not ordered:
        return counted
    return msgspec.structs.replace(counted, min=low, max=high, mean=as_float(total.value() / finite))


def largest_of(tensor: Either) -> float:
    """The size of the largest finite element, or of one that is no smaller."""
    found = statistics(tensor)
    return max(-(found.min or 0.0), found.max or 0.0) if found.max is not None else found.l2 or 0.0


def sample_of(tensor: Tensor, most: int) -> Values | None:
    """About so many elements, evenly apart, as the widest numbers they need; None for what are no numbers."""
    dtype = dtype_named(tensor.dtype)
    if not has_arithmetic(dtype) or not dtype.itemsize:
        return None
    step = max(1, prod(tensor.shape) // most)
    if isinstance(tensor, DeviceTensor):
        return widened(tensor.dtype, tensor.sample(step, dtype.itemsize))
    rows = np.frombuffer(tensor.data, np.uint8).reshape(-1, dtype.itemsize)
    with np.errstate(all="ignore"):  # a signalling NaN
        return widened(tensor.dtype, np.ascontiguousarray(rows[::step]).reshape(-1))


def root(square: Fraction) -> float:
    """The square root of a fraction, which may be larger or smaller than any float."""
    above, below = square.as_integer_ratio()
    shift = (above.bit_length() - below.bit_length()) // 2
    # Python divides whole numbers of any size with one rounding.
    found = sqrt((above << max(0, -2 * shift)) / (below << max(0, 2 * shift)))
    try:
        return ldexp(found, shift)
    except OverflowError:
        return inf
