"""The kernels for what is no float: 64-bit integers, to the last bit, and elements that only are equal or not."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from karat.tensors.decoding import Bits, Values
from karat.tensors.dtypes import Dtype
from karat.tensors.numpy_arrays import numpy_dtype
from karat.tensors.outcome import Tolerance
from karat.tensors.quick import dot, equal_mask, same_bits, see_same
from karat.tensors.tally import Tally

_LARGEST = (1 << 64) - 1


class Whole:
    """Compares chunks of int64 or uint64; differences are exact, however large."""

    def __init__(self, dtype: Dtype, tolerance: Tolerance) -> None:
        self.kind = "<i8" if dtype.signed else "<u8"
        self.tolerance = tolerance

    def compare(self, tally: Tally, expected_bits: Bits, actual_bits: Bits) -> None:
        """Counts one chunk."""
        expected, actual = expected_bits.view(self.kind), actual_bits.view(self.kind)
        if same_bits(expected_bits, actual_bits):
            see_same(tally, expected.astype(np.float64), float(expected[0]))
            return
        # Two's complement: the difference of the larger and the smaller is right as an unsigned number.
        apart = np.maximum(expected, actual).view("<u8") - np.minimum(expected, actual).view("<u8")
        tally.bit_equal += expected.size - int(np.count_nonzero(apart))
        e, a, sizes = (values.astype(np.float64) for values in (expected, actual, apart))
        self._see_outside(tally, apart, sizes, e)
        at = int(apart.argmax())
        tally.abs.see(int(apart[at]), tally.at + at, float(e[at]), float(a[at]))
        _see_quotient(tally, sizes, e)
        difference = np.where(actual >= expected, sizes, -sizes)
        for total, one, other in (
            (tally.ee, e, e), (tally.aa, a, a), (tally.ea, e, a),
            (tally.ed, e, difference), (tally.dd, sizes, sizes),
        ):  # fmt: skip
            total.add(dot(one, other))
        tally.sum_abs.add(float(sizes.sum()))
        tally.count(expected.size)

    def _see_outside(
        self, tally: Tally, apart: NDArray[np.uint64], sizes: Values, expected: Values
    ) -> None:
        rtol, atol = self.tolerance.rtol, self.tolerance.atol
        if rtol:
            outside = sizes > atol + rtol * np.abs(expected)
        elif atol >= _LARGEST:
            return
        else:
            outside = apart > np.uint64(int(atol))
        tally.mismatch(int(np.count_nonzero(outside)), tally.at + int(outside.argmax()))


def _see_quotient(tally: Tally, sizes: Values, expected: Values) -> None:
    at = np.flatnonzero(expected)
    if at.size:
        quotient = sizes[at] / np.abs(expected[at])
        best = int(quotient.argmax())
        tally.rel.see(float(quotient[best]), tally.at + int(at[best]))


class Opaque:
    """Compares chunks of text, times, structures and bare bits: equal or not.

    A time that is none, and a structure with a NaN in a field, are NaN: the same bits do not make them pass.
    """

    def __init__(self, dtype: Dtype, tolerance: Tolerance) -> None:
        self.dtype, self.tolerance = dtype, tolerance
        form = numpy_dtype(dtype.name) if dtype.name.startswith(("<m", "<M", "[")) else None
        self.form = form if form is not None and _may_be_missing(form) else None

    def compare(self, tally: Tally, expected: Bits, actual: Bits) -> None:
        """Counts one chunk."""
        if not self.dtype.itemsize:
            return
        same = equal_mask(self.dtype, expected, actual)
        tally.bit_equal += int(np.count_nonzero(same))
        if self.form is not None:
            missing = _missing(expected.view(self.form))
            tally.nan_expected += int(np.count_nonzero(missing))
            tally.nan_actual += int(np.count_nonzero(_missing(actual.view(self.form))))
            same = same if self.tolerance.equal_nan else same & ~missing
        tally.mismatch(int(np.count_nonzero(~same)), tally.at + int(same.argmin()))
        tally.count(same.size, 0)


def _may_be_missing(form: np.dtype[Any]) -> bool:
    """Whether an element of the dtype, or a field of one, can be NaN or no time."""
    if form.names is None:
        return form.base.kind in "fcmM"
    return any(_may_be_missing(form[name].base) for name in form.names)


def _missing(values: NDArray[Any]) -> NDArray[np.bool_]:
    """Which elements are NaN, are no time, or have a field that is."""
    if values.dtype.kind in "fcmM":
        return np.asarray((np.isnat if values.dtype.kind in "mM" else np.isnan)(values))
    found = np.zeros(values.shape, bool)
    for name in values.dtype.names or ():
        inside = _missing(values[name])
        found |= inside.any(axis=tuple(range(values.ndim, inside.ndim)))
    return found
