"""The statistics of one tensor: what a person can tell apart at a glance, over its finite elements.

Sums are taken in float64, block by block in buffers that are used again, so that memory does not grow.
Complex numbers have no order and no mean worth a glance: an l2 and counts alone.
"""

from __future__ import annotations

from contextlib import closing
from fractions import Fraction
from math import inf, prod, sqrt
from typing import Any

import numpy as np

from karat.tensors.bits import Bits, Values, decode, per_element, widened, work_dtype
from karat.tensors.blocks import Either, TensorBlocks, require_whole
from karat.tensors.comparison import Statistics
from karat.tensors.dtypes import Dtype, dtype_named
from karat.tensors.kernels import dot, has_arithmetic
from karat.tensors.tally import Sum, as_float, scaled

_CHUNK = 1 << 17


def statistics(tensor: Either, name: str = "tensor") -> Statistics:
    """The statistics; `Damaged` if the bytes are not there."""
    dtype = dtype_named(tensor.dtype)
    if not has_arithmetic(dtype):
        return Statistics()
    require_whole(tensor, name, "only")
    running = _Running(dtype)
    size, total = _CHUNK * dtype.itemsize, prod(tensor.shape) * dtype.itemsize
    with closing(TensorBlocks(tensor, size)) as side, np.errstate(all="ignore"):
        for at in range(0, total, size):
            running.see(side.block(at, min(total, at + size)))
    return running.result()


class _Running:
    def __init__(self, dtype: Dtype) -> None:
        self.dtype = dtype
        work, count = work_dtype(dtype.name), _CHUNK * per_element(dtype.name)
        self.narrow: Values | None = None if work is None else np.empty(count, work)
        self.wide: Values = np.empty(count, np.float64)
        self.ordered = dtype.kind != "complex"
        self.finite = self.nan = self.inf = 0
        self.min: float = inf
        self.max: float = -inf
        self.sum, self.squares = Sum(), Sum()

    def see(self, bits: Bits) -> None:
        # Numbers in their own order; 64-bit integers as such, because a float may not hold the largest.
        if self.narrow is not None:
            values = decode(self.dtype.name, bits, self.narrow)
        elif self.dtype.kind == "int":
            values = bits.view("<i8" if self.dtype.signed else "<u8")
        else:
            found = widened(self.dtype.name, bits)
            assert found is not None, "has_arithmetic was asked"  # noqa: S101
            values = found
        if self.ordered:
            low, high = values.min(), values.max()
            if np.isfinite(low) and np.isfinite(high):
                self._see_finite(values, low, high)
                return
        missing, fine = np.isnan(values), np.isfinite(values)
        self.nan += int(np.count_nonzero(missing))
        self.inf += int(np.count_nonzero(~fine & ~missing))
        values = values[fine]
        if values.size and self.ordered:
            self._see_finite(values, values.min(), values.max())
        elif values.size:
            self.finite += values.size
            self._add(np.concatenate([values.real, values.imag]))

    def _see_finite(self, values: Values, low: Any, high: Any) -> None:
        self.finite += values.size
        self.min, self.max = min(self.min, float(low)), max(self.max, float(high))
        # Integers are never so large that their squares would not fit.
        top = max(-low, high) if values.dtype.kind == "f" else 1.0
        if values.dtype.itemsize <= 8 and values.dtype != np.float64:
            wide = self.wide[: values.size]
            np.copyto(wide, values, casting="same_kind")
            values = wide
        self._add(values, top)

    def _add(self, values: Values, top: Any = None) -> None:
        values, exponent = scaled(values, top)
        self.sum.add(float(values.sum()), exponent)
        self.squares.add(dot(values, values), 2 * exponent)

    def result(self) -> Statistics:
        if not self.finite:
            return Statistics(nan=self.nan, inf=self.inf)
        return Statistics(
            min=self.min if self.ordered else None,
            max=self.max if self.ordered else None,
            mean=as_float(self.sum.value() / self.finite) if self.ordered else None,
            l2=root(self.squares.value()),
            nan=self.nan,
            inf=self.inf,
        )


def root(square: Fraction) -> float:
    """The square root of a fraction, which may be larger or smaller than any float."""
    shift = (square.numerator.bit_length() - square.denominator.bit_length()) // 2
    return as_float(Fraction(sqrt(square / Fraction(4) ** shift)) * Fraction(2) ** shift)
