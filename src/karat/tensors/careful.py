"""The careful kernel: a chunk with NaN, infinities, complex numbers, or numbers near the ends of float64.

Everything in float64 (complex128, or this machine's long double), with the non-finite pairs set apart. Sums
are scaled by powers of two, so that squares neither overflow nor vanish. A difference that is larger than
any float is infinite as a number, and judged at a quarter of its size.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from karat.tensors.decoding import Bits, Values, widened
from karat.tensors.dtypes import Dtype
from karat.tensors.outcome import Tolerance
from karat.tensors.quick import dot, equal_elements, same_bits, see_same
from karat.tensors.sums import Sum, scaled
from karat.tensors.tally import Tally
from karat.tensors.ulps import distances

Mask = NDArray[np.bool_]


class Careful:
    """Compares chunks of numbers of any dtype, or of two."""

    def __init__(self, dtype: Dtype, other: Dtype, tolerance: Tolerance) -> None:
        self.dtype, self.other, self.tolerance = dtype, other, tolerance
        part = {"complex64": "<f4", "complex128": "<f8"}.get(dtype.name)
        self.part = part if dtype.name == other.name else None
        """What a complex element is two of; real ones that are the same never come here."""

    def compare(self, tally: Tally, expected_bits: Bits, actual_bits: Bits) -> None:
        """Counts one chunk."""
        if self.part is not None and same_bits(expected_bits, actual_bits):
            values = expected_bits.view(self.part).astype(np.float64)
            if see_same(tally, values, abs(complex(values[0], values[1])), parts=2):
                return
        expected, actual = _pair(self.dtype.name, expected_bits, self.other.name, actual_bits)
        finite = np.isfinite(expected) & np.isfinite(actual)
        alike = self.dtype.name == self.other.name
        if alike:
            tally.bit_equal += equal_elements(self.dtype, expected_bits, actual_bits)
        else:
            tally.bit_equal += int(np.count_nonzero(_same_values(expected, actual)))
        wrong = self._see_odd(tally, expected, actual, finite)
        if wrong is not None:
            expected, actual = np.where(finite, expected, 0), np.where(finite, actual, 0)
        pairs = int(np.count_nonzero(finite))
        if pairs:
            outside = self._see_pairs(tally, expected, actual, finite)
            wrong = outside if wrong is None else wrong | outside
            if alike and self.dtype.layout is not None:
                steps = distances(self.dtype, expected_bits, actual_bits)
                each = steps.reshape(expected.size, -1).max(axis=1)
                tally.ulp = max(tally.ulp, int(each[finite].max()))
        count = 0 if wrong is None else int(np.count_nonzero(wrong))
        if wrong is not None and count:
            tally.mismatch(count, tally.at + int(wrong.argmax()))
        tally.count(expected.size, pairs)

    def _see_odd(self, tally: Tally, expected: Values, actual: Values, finite: Mask) -> Mask | None:
        """Counts NaN and infinities; returns which of them are mismatches, None if there are none at all."""
        if finite.all():
            return None
        nan_expected, nan_actual = np.isnan(expected), np.isnan(actual)
        fine_expected, fine_actual = np.isfinite(expected), np.isfinite(actual)
        tally.nan_expected += int(np.count_nonzero(nan_expected))
        tally.nan_actual += int(np.count_nonzero(nan_actual))
        tally.inf_expected += int(np.count_nonzero(~fine_expected & ~nan_expected))
        tally.inf_actual += int(np.count_nonzero(~fine_actual & ~nan_actual))
        tally.spoil(fine_expected & ~fine_actual)
        agree = expected == actual
        if self.tolerance.equal_nan:
            agree |= nan_expected & nan_actual
        return np.asarray(~finite & ~agree)

    def _see_pairs(self, tally: Tally, expected: Values, actual: Values, finite: Mask) -> Mask:
        """Differences, quotients and sums; non-finite pairs are zero on both sides by now."""
        difference = actual - expected
        sizes, absolute = np.abs(difference), np.abs(expected)
        rtol, atol = self.tolerance.rtol, self.tolerance.atol
        outside = sizes > atol + rtol * absolute
        huge = np.isinf(sizes) | np.isinf(absolute)
        up = 0
        base = absolute
        largest = sizes
        if huge.any():
            difference, base, up = actual / 4 - expected / 4, np.abs(expected / 4), 2
            largest = np.abs(difference)
            outside[huge] = (largest > atol / 4 + rtol * base)[huge]
        _see_largest(tally, sizes, expected, actual, finite)
        divisible = finite & (base != 0)
        if divisible.any():
            quotient = np.divide(largest, base, out=np.zeros_like(base), where=divisible)
            at = int(np.flatnonzero(divisible)[quotient[divisible].argmax()])
            tally.rel.see(float(quotient[at]), tally.at + at)
        _add_sums(tally, expected, actual, (difference, largest, up))
        return np.asarray(outside)


def _pair(one: str, one_bits: Bits, other: str, other_bits: Bits) -> tuple[Values, Values]:
    expected, actual = widened(one, one_bits), widened(other, other_bits)
    if expected is None or actual is None:
        raise TypeError(f"no arithmetic for {one} and {other} on this machine")
    if expected.dtype == actual.dtype:
        return expected, actual
    both = np.result_type(expected, actual)
    return expected.astype(both), actual.astype(both)


def _same_values(expected: Values, actual: Values) -> Mask:
    """Of two dtypes: the same number with the same sign, or NaN on both sides."""
    same = (expected == actual) & (np.signbit(expected.real) == np.signbit(actual.real))
    return np.asarray(same | (np.isnan(expected) & np.isnan(actual)))


def _see_largest(
    tally: Tally, sizes: Values, expected: Values, actual: Values, finite: Mask
) -> None:
    at = int(np.flatnonzero(finite)[sizes[finite].argmax()])
    tally.abs.see(float(sizes[at]), tally.at + at, _shown(expected[at]), _shown(actual[at]))


def _shown(value: Any) -> float:
    return float(np.abs(value)) if np.iscomplexobj(value) else float(value)


def _add_sums(
    tally: Tally, expected: Values, actual: Values, apart: tuple[Values, Values, int]
) -> None:
    """`apart`: the difference, its size, and the power of two that both are short of."""
    e, e_up = scaled(expected)
    a, a_up = scaled(actual)
    difference, d_up = scaled(apart[0])
    sizes, s_up = scaled(apart[1])
    short = apart[2]
    _add(tally.ee, e, e, 2 * e_up)
    _add(tally.aa, a, a, 2 * a_up)
    _add(tally.ea, e, a, e_up + a_up)
    _add(tally.ed, e, difference, e_up + d_up + short)
    _add(tally.dd, difference, difference, 2 * (d_up + short))
    tally.sum_abs.add(float(sizes.sum()), s_up + short)


def _add(total: Sum, one: Values, other: Values, exponent: int) -> None:
    if one.dtype.kind == "c":
        total.add(float((one.real * other.real + one.imag * other.imag).sum()), exponent)
    elif one.dtype == np.float64:
        total.add(dot(one, other), exponent)
    else:
        total.add(float((one * other).sum()), exponent)


def has_arithmetic(dtype: Dtype) -> bool:
    """Whether this machine can reckon with the dtype."""
    if dtype.kind == "opaque":
        return False
    return widened(dtype.name, np.empty(0, np.uint8)) is not None
