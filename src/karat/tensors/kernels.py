"""The kernels that compare one chunk: `Quick`, `Careful`, `Whole` and `Opaque`.

`Quick` compares real numbers in the float that holds them, in few passes over warm buffers. It answers only if its
arithmetic is beyond doubt, and returns False if it is not (NaN, infinities, squares that overflow or vanish), for
`Careful` to do. What is exact and what is not:

- counts, extremes and where they are, ULPs and the verdict on each element are those of float64: float32 only
  sorts out which cannot be the largest and which are surely inside or outside the tolerance; the rest is looked at
  again in float64;
- sums (mean, SQNR, cosine) are taken in float32 over rows of 4096 elements, then exactly: about six digits for types
  of up to 32 bits, all of float64's for float64.

`Careful` does everything in float64 (complex128, or this machine's long double), with the non-finite pairs set apart.
Sums are scaled by powers of two, so that squares neither overflow nor vanish. A difference that is larger than any
float is infinite as a number, and judged at a quarter of its size.

`Whole` compares 64-bit integers to the last bit, `Opaque` elements that are equal or not.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from karat.tensors.bits import Bits, Values, decode, distances, per_element, widened
from karat.tensors.comparison import Tolerance
from karat.tensors.dtypes import Dtype
from karat.tensors.numpy_arrays import numpy_dtype
from karat.tensors.tally import Sum, Tally, scaled

# Bytes of one buffer: calls are few enough for threads not to wait for one another, and caches still hold it.
CHUNK = 2 << 20
ROW = 4096
Mask = NDArray[np.bool_]
_LARGEST = (1 << 64) - 1


class FloatLimits(msgspec.Struct, frozen=True):
    """Where a float's arithmetic is beyond doubt."""

    slack: float  # a generous relative error of a difference, a quotient or a threshold
    least_square: float  # a sum of squares below this may have lost some
    least_difference: float
    least_tolerance: float
    largest_tolerance: float


LIMITS = {4: FloatLimits(2.0**-20, 1e-20, 1e-14, 1e-25, 1e6), 8: FloatLimits(2.0**-48, 1e-200, 1e-130, 1e-150, 1e30)}


def dot(one: Values, other: Values) -> float:
    """Σ one · other: float by float in rows of `ROW`, exactly beyond. No row is long enough for BLAS to use threads."""
    whole = one.size - one.size % ROW
    rows = np.matmul(one[:whole].reshape(-1, 1, ROW), other[:whole].reshape(-1, ROW, 1))
    total = float(rows.sum(dtype=np.float64))
    return total + float(np.dot(one[whole:], other[whole:])) if whole < one.size else total


def see_same(tally: Tally, values: Values, first: float) -> bool:
    """Count elements that are the same on both sides; False for more care.

    `first` is how the first one is shown.
    """
    square = dot(values, values)
    if not _is_sound(square, values, LIMITS[values.dtype.itemsize]):
        return False
    for total in (tally.ee, tally.aa, tally.ea):
        total.add(square)
    tally.bit_equal += values.size
    tally.abs.see(0.0, tally.at, first, first)
    tally.ulp = max(tally.ulp, 0)
    if tally.rel.at < 0 and (found := np.flatnonzero(values)).size:
        tally.rel.see(0.0, tally.at + int(found[0]))
    tally.count(values.size)
    return True


def _is_sound(square: float, values: Values, limits: FloatLimits) -> bool:
    """All are finite, and no square that matters was lost."""
    return square < np.inf and (square >= limits.least_square or not values.any())


class Quick:
    """Compares chunks of one real dtype, one thread's worth."""

    def __init__(self, dtype: Dtype, work: np.dtype[Any], tolerance: Tolerance, size: int) -> None:
        self.dtype, self.work, self.tolerance = dtype, work, tolerance
        self.limits = LIMITS[work.itemsize]
        # Memory of one thread, touched once and used for every chunk.
        numbers = size * per_element(dtype.name)
        self.expected, self.actual = np.empty(numbers, work), np.empty(numbers, work)
        self.difference, self.quotient = np.empty(numbers, work), np.empty(numbers, work)
        self.low, self.high = np.empty(numbers, bool), np.empty(numbers, bool)
        self.ones = np.ones((ROW, 1), work)
        low, high = self.limits.least_tolerance, self.limits.largest_tolerance
        self.able = all(t == 0 or low <= t <= high for t in (tolerance.rtol, tolerance.atol))
        # Same-sign floats are as far apart as their bits are as integers.
        whole = dtype.kind == "float" and dtype.width == 8 * dtype.itemsize and dtype.width >= 16
        self.signed_bits = f"<i{dtype.itemsize}" if whole and dtype.signed else None

    def compare(self, tally: Tally, expected_bits: Bits, actual_bits: Bits) -> bool:
        """Count one chunk; False if it needs more care, and nothing was counted."""
        same = same_bits(expected_bits, actual_bits)
        if not (same or self.able):
            return False
        expected = decode(self.dtype.name, expected_bits, self.expected)
        if same:
            return see_same(tally, expected, float(expected[0]))
        actual = decode(self.dtype.name, actual_bits, self.actual)
        size = expected.size
        difference = np.subtract(actual, expected, out=self.difference[:size])
        ee, dd, ed = dot(expected, expected), dot(difference, difference), dot(expected, difference)
        # A difference that is not finite makes its square so, and with it actual is sound.
        if not (dd < np.inf and _is_sound(ee, expected, self.limits)):
            return False
        if 16 * dd < ee:  # a = e + d, and no digits cancel: two products need not be taken
            aa, ea = ee + 2 * ed + dd, ee + ed
            sound = max(aa, ea) < np.inf
        else:
            aa, ea = dot(actual, actual), dot(expected, actual)
            sound = _is_sound(aa, actual, self.limits)
        if not sound:
            return False
        np.divide(difference, expected, out=self.quotient[:size])
        np.abs(difference, out=difference)
        largest = float(difference.max())
        if 0 < largest < self.limits.least_difference:
            return False
        for total, term in zip((tally.ee, tally.dd, tally.ed, tally.aa, tally.ea), (ee, dd, ed, aa, ea), strict=True):
            total.add(term)
        whole = size - size % ROW
        rows = np.matmul(difference[:whole].reshape(-1, 1, ROW), self.ones)
        rest = float(difference[whole:].sum(dtype=np.float64))
        tally.sum_abs.add(float(rows.sum(dtype=np.float64)) + rest)
        if largest >= tally.abs.size * (1 - self.limits.slack):
            # The largest difference: rounding keeps order, so it is among those that look largest.
            at = np.flatnonzero(np.equal(difference, largest, out=self.low[:size]))
            e, a = expected[at].astype(np.float64), actual[at].astype(np.float64)
            sizes = np.abs(a - e)
            best = int(sizes.argmax())
            tally.abs.see(float(sizes[best]), tally.at + int(at[best]), float(e[best]), float(a[best]))
        risen, fallen = self._see_quotient(tally, expected, actual)
        self._see_mismatches(tally, largest, max(risen, -fallen), expected, actual)
        # Last, because it takes the quotient's memory.
        self._see_bits(tally, expected_bits, actual_bits, crossing=not fallen > -1)
        tally.count(size)
        return True

    def _see_quotient(self, tally: Tally, expected: Values, actual: Values) -> tuple[float, float]:
        """The largest quotient; returns the extremes of all, infinite where something came of zero."""
        quotient = self.quotient[: expected.size]
        risen, fallen = _extremes(quotient)
        highest, lowest = risen, fallen
        if risen == np.inf or fallen == -np.inf:
            quotient = np.where(expected == 0, np.nan, quotient)
            highest, lowest = _extremes(quotient)
        largest = max(highest, -lowest)
        slack = self.limits.slack
        # It is NaN where all were zero, and nothing is compared with NaN.
        if largest >= 0 and largest >= tally.rel.size * (1 - slack):
            near = largest * (1 - slack)
            at = np.flatnonzero((quotient >= near) | (quotient <= -near))
            e, a = expected[at].astype(np.float64), actual[at].astype(np.float64)
            sizes = np.abs(a - e) / np.abs(e)
            best = int(sizes.argmax())
            tally.rel.see(float(sizes[best]), tally.at + int(at[best]))
        return risen, fallen

    def _see_mismatches(self, tally: Tally, largest: float, steepest: float, expected: Values, actual: Values) -> None:
        slack, rtol, atol = self.limits.slack, self.tolerance.rtol, self.tolerance.atol
        if largest * (1 + slack) <= atol or steepest * (1 + slack) <= rtol:
            return
        size = expected.size
        low, high, bound = self.low[:size], self.high[:size], self.quotient[:size]
        # What is compared: differences with a threshold, or quotients with rtol alone.
        if atol:
            sizes = self.difference[:size]
            np.multiply(np.abs(expected, out=bound), (1 - slack) * rtol, out=bound)
            np.add(bound, (1 - slack) * atol, out=bound)
        else:
            sizes, bound = np.abs(bound, out=bound), np.asarray((1 - slack) * rtol, self.work)
        np.greater(sizes, bound, out=low)
        count = int(np.count_nonzero(low))
        if not count:
            return
        np.greater(sizes, np.multiply(bound, (1 + slack) / (1 - slack), out=bound), out=high)
        if int(np.count_nonzero(high)) < count:
            unsure = np.flatnonzero(low & ~high)
            e, a = expected[unsure].astype(np.float64), actual[unsure].astype(np.float64)
            low[unsure] = np.abs(a - e) > atol + rtol * np.abs(e)
            count = int(np.count_nonzero(low))
        tally.mismatch(count, tally.at + int(low.argmax()))

    def _see_bits(self, tally: Tally, expected: Bits, actual: Bits, *, crossing: bool) -> None:
        """Equal bits, and the steps between those that differ."""
        if self.signed_bits is None:
            tally.bit_equal += equal_elements(self.dtype, expected, actual)
            if self.dtype.kind == "float":
                tally.ulp = max(tally.ulp, int(distances(self.dtype, expected, actual).max()))
            return
        one, other = expected.view(self.signed_bits), actual.view(self.signed_bits)
        apart = self.quotient.view(self.signed_bits)[: one.size]
        np.subtract(one, other, out=apart)
        tally.bit_equal += one.size - int(np.count_nonzero(apart))
        furthest = max(int(apart.max()), -int(apart.min()))
        # Zeros of both signs look as if they were half the range apart.
        if crossing or furthest >= 1 << (self.dtype.width - 2):
            # The steps of those, mostly few, whose sign changed; then the most of all others.
            spare = self.difference.view(apart.dtype)[: one.size]
            np.bitwise_xor(one, other, out=spare)
            at = np.flatnonzero(np.less(spare, 0, out=self.low[: one.size]))
            if at.size:
                steps = distances(self.dtype, one[at].view(np.uint8), other[at].view(np.uint8))
                tally.ulp = max(tally.ulp, int(steps.max()))
                apart[at] = 0
            furthest = max(int(apart.max()), -int(apart.min()))
        tally.ulp = max(tally.ulp, furthest)


def _extremes(quotient: Values) -> tuple[float, float]:
    return float(np.fmax.reduce(quotient)), float(np.fmin.reduce(quotient))


def same_bits(expected: Bits, actual: Bits) -> bool:
    """Whether all bytes are the same; mostly known after the first few."""
    if not np.array_equal(expected[:1024], actual[:1024]):
        return False
    whole = expected.size - expected.size % 8
    return np.array_equal(expected[:whole].view(np.uint64), actual[:whole].view(np.uint64)) and np.array_equal(
        expected[whole:], actual[whole:]
    )


def equal_elements(dtype: Dtype, expected: Bits, actual: Bits) -> int:
    if dtype.name == "float4_e2m1fn_x2":
        either = expected ^ actual
        return int(np.count_nonzero(either & 15 == 0) + np.count_nonzero(either >> 4 == 0))
    return int(np.count_nonzero(equal_mask(dtype, expected, actual)))


def equal_mask(dtype: Dtype, expected: Bits, actual: Bits) -> Mask:
    size = dtype.itemsize
    if size in {1, 2, 4, 8}:
        return np.asarray(expected.view(f"<u{size}") == actual.view(f"<u{size}"))
    return np.asarray((expected == actual).reshape(-1, size).all(axis=1))


class Careful:
    """Compares chunks of numbers of any dtype, or of two."""

    def __init__(self, dtype: Dtype, other: Dtype, tolerance: Tolerance) -> None:
        self.dtype, self.other, self.tolerance = dtype, other, tolerance

    def compare(self, tally: Tally, expected_bits: Bits, actual_bits: Bits) -> None:
        one, other = widened(self.dtype.name, expected_bits), widened(self.other.name, actual_bits)
        if one is None or other is None:
            raise TypeError(f"no arithmetic for {self.dtype.name} and {self.other.name} on this machine")
        both = np.result_type(one, other)
        expected, actual = one.astype(both, copy=False), other.astype(both, copy=False)
        finite = np.isfinite(expected) & np.isfinite(actual)
        alike = self.dtype.name == self.other.name
        if alike:
            tally.bit_equal += equal_elements(self.dtype, expected_bits, actual_bits)
        else:
            # The same number with the same sign, or NaN on both sides.
            same = (expected == actual) & (np.signbit(expected.real) == np.signbit(actual.real))
            same |= np.isnan(expected) & np.isnan(actual)
            tally.bit_equal += int(np.count_nonzero(same))
        wrong: Mask | None = None
        if not finite.all():
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
            wrong = np.asarray(~finite & ~agree)
            expected, actual = np.where(finite, expected, 0), np.where(finite, actual, 0)
        pairs = int(np.count_nonzero(finite))
        if pairs:
            outside = self._see_pairs(tally, expected, actual, finite)
            wrong = outside if wrong is None else wrong | outside
            if alike and self.dtype.layout is not None:
                steps = distances(self.dtype, expected_bits, actual_bits)
                each = steps.reshape(expected.size, -1).max(axis=1)
                tally.ulp = max(tally.ulp, int(each[finite].max()))
        if wrong is not None:
            tally.mismatch(int(np.count_nonzero(wrong)), tally.at + int(wrong.argmax()))
        tally.count(expected.size, pairs)

    def _see_pairs(self, tally: Tally, expected: Values, actual: Values, finite: Mask) -> Mask:
        """Differences, quotients and sums; non-finite pairs are zero on both sides by now."""
        difference = actual - expected
        sizes, absolute = np.abs(difference), np.abs(expected)
        rtol, atol = self.tolerance.rtol, self.tolerance.atol
        outside = sizes > atol + rtol * absolute
        huge = np.isinf(sizes) | np.isinf(absolute)
        base, largest, up = absolute, sizes, 0
        if huge.any():
            difference, base, up = actual / 4 - expected / 4, np.abs(expected / 4), 2
            largest = np.abs(difference)
            outside[huge] = (largest > atol / 4 + rtol * base)[huge]
        at = int(np.flatnonzero(finite)[sizes[finite].argmax()])
        tally.abs.see(float(sizes[at]), tally.at + at, _shown(expected[at]), _shown(actual[at]))
        divisible = finite & (base != 0)
        if divisible.any():
            quotient = np.divide(largest, base, out=np.zeros_like(base), where=divisible)
            at = int(np.flatnonzero(divisible)[quotient[divisible].argmax()])
            tally.rel.see(float(quotient[at]), tally.at + at)
        # Both are short of what they were by a power of two where something was huge.
        (e, e_up), (a, a_up), (d, d_up), (s, s_up) = map(scaled, (expected, actual, difference, largest))
        _add(tally.ee, e, e, 2 * e_up)
        _add(tally.aa, a, a, 2 * a_up)
        _add(tally.ea, e, a, e_up + a_up)
        _add(tally.ed, e, d, e_up + d_up + up)
        _add(tally.dd, d, d, 2 * (d_up + up))
        tally.sum_abs.add(float(s.sum()), s_up + up)
        return np.asarray(outside)


def _shown(value: Any) -> float:
    return float(np.abs(value)) if np.iscomplexobj(value) else float(value)


def _add(total: Sum, one: Values, other: Values, exponent: int) -> None:
    if one.dtype == np.float64:
        total.add(dot(one, other), exponent)
        return
    products = one.real * other.real + one.imag * other.imag if one.dtype.kind == "c" else one * other
    total.add(float(products.sum()), exponent)


@lru_cache(1024)
def has_arithmetic(dtype: Dtype) -> bool:
    """Whether this machine can compute with the dtype."""
    return dtype.kind != "opaque" and widened(dtype.name, np.empty(0, np.uint8)) is not None


class Whole:
    """Compares chunks of int64 or uint64; differences are exact, however large."""

    def __init__(self, dtype: Dtype, tolerance: Tolerance) -> None:
        self.kind = "<i8" if dtype.signed else "<u8"
        self.tolerance = tolerance

    def compare(self, tally: Tally, expected_bits: Bits, actual_bits: Bits) -> None:
        expected, actual = expected_bits.view(self.kind), actual_bits.view(self.kind)
        if same_bits(expected_bits, actual_bits):
            see_same(tally, expected.astype(np.float64), float(expected[0]))
            return
        # Two's complement: the difference of the larger and the smaller is right as an unsigned number.
        apart = np.maximum(expected, actual).view("<u8") - np.minimum(expected, actual).view("<u8")
        tally.bit_equal += expected.size - int(np.count_nonzero(apart))
        e, a, sizes = (values.astype(np.float64) for values in (expected, actual, apart))
        rtol, atol = self.tolerance.rtol, self.tolerance.atol
        if rtol or atol < _LARGEST:
            outside = sizes > atol + rtol * np.abs(e) if rtol else apart > np.uint64(int(atol))
            tally.mismatch(int(np.count_nonzero(outside)), tally.at + int(outside.argmax()))
        at = int(apart.argmax())
        tally.abs.see(int(apart[at]), tally.at + at, float(e[at]), float(a[at]))
        divisible = np.flatnonzero(e)
        if divisible.size:
            quotient = sizes[divisible] / np.abs(e[divisible])
            best = int(quotient.argmax())
            tally.rel.see(float(quotient[best]), tally.at + int(divisible[best]))
        difference = np.where(actual >= expected, sizes, -sizes)
        tally.ee.add(dot(e, e))
        tally.aa.add(dot(a, a))
        tally.ea.add(dot(e, a))
        tally.ed.add(dot(e, difference))
        tally.dd.add(dot(sizes, sizes))
        tally.sum_abs.add(float(sizes.sum()))
        tally.count(expected.size)


class Opaque:
    """Compares chunks of text, times, structures and bare bits: equal or not.

    A time that is none, and a structure with a NaN in a field, are NaN: the same bits do not make them pass.
    """

    def __init__(self, dtype: Dtype, tolerance: Tolerance) -> None:
        self.dtype, self.tolerance = dtype, tolerance
        form = numpy_dtype(dtype.name) if dtype.name.startswith(("<m", "<M", "[")) else None
        self.form = form if form is not None and _may_be_missing(form) else None

    def compare(self, tally: Tally, expected: Bits, actual: Bits) -> None:
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


def _missing(values: NDArray[Any]) -> Mask:
    """Which elements are NaN, are no time, or have a field that is."""
    if values.dtype.kind in "fcmM":
        return np.asarray((np.isnat if values.dtype.kind in "mM" else np.isnan)(values))
    found = np.zeros(values.shape, bool)
    for name in values.dtype.names or ():
        inside = _missing(values[name])
        found |= inside.any(axis=tuple(range(values.ndim, inside.ndim)))
    return found
