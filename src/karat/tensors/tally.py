"""The tally of a comparison: counts, extremes and sums of the elements seen so far.

Sums of them are exact, so that the tallies of several threads add up to the same numbers in any order.
"""

from __future__ import annotations

from fractions import Fraction
from math import inf, log10, sqrt
from typing import Any

import numpy as np
from numpy.typing import NDArray

from karat.tensors.comparison import TensorNumbers


class Sum:
    """An exact running sum of floats times powers of two."""

    __slots__ = ("_number", "_unit")

    def __init__(self) -> None:
        self._number = self._unit = 0  # The sum is number · 2 ** unit.

    def add(self, term: float, exponent: int = 0) -> None:
        number, below = term.as_integer_ratio()
        self._add(number, exponent + 1 - below.bit_length())

    def include(self, other: Sum) -> None:
        self._add(other._number, other._unit)

    def _add(self, number: int, unit: int) -> None:
        lower = min(unit, self._unit)
        self._number = (self._number << self._unit - lower) + (number << unit - lower)
        self._unit = lower

    def value(self) -> Fraction:
        number, unit = self._number, self._unit
        return Fraction(number << unit) if unit >= 0 else Fraction(number, 1 << -unit)


def scaled(values: NDArray[Any], top: float | None = None) -> tuple[NDArray[Any], int]:
    """Values whose squares can be summed as float64, and the power of two that makes them what they were.

    `top` is the size of the largest, if it is known already.
    """
    if top is None:
        # The largest part: the size of a complex number may be no float.
        parts = (values.real, values.imag) if values.dtype.kind == "c" else (values,)
        top = max(np.abs(part).max() for part in parts)
    if top == 0 or 1e-100 < top < 1e100:
        return values, 0
    real = values.real.dtype
    # Short of the type's largest exponent, so that the factor is a number of the type.
    most = int(np.finfo(real).maxexp) - 24
    exponent = max(-most, min(most, int(np.frexp(top)[1])))
    return values * np.ldexp(real.type(1), -exponent), exponent


class Worst:
    """The largest of something and where it was first; the earlier of two that are equal."""

    __slots__ = ("actual", "at", "expected", "size")

    def __init__(self) -> None:
        self.size: float = -1.0  # a whole number for 64-bit integers, which no float can hold
        self.at = -1
        self.expected: float | None = None
        self.actual: float | None = None

    def see(self, size: float, at: int, expected: float | None = None, actual: float | None = None) -> None:
        """Keep it if it is larger, or as large and earlier."""
        if size > self.size or (size == self.size and at < self.at):
            self.size, self.at, self.expected, self.actual = size, at, expected, actual


class Tally:
    """Counts, sums and extremes of some elements; indices are of the flat tensor."""

    def __init__(self, start: int = 0) -> None:
        self.at = start  # the element that comes next
        self.elements = self.bit_equal = self.mismatches = 0
        self.spoiled = 0  # finite on the expected side, NaN or infinite on the actual one
        self.first = self.first_spoiled = -1
        self.pairs = 0  # elements that are finite on both sides; all that follows is about them
        self.abs, self.rel = Worst(), Worst()
        self.ulp = -1
        self.nan_expected = self.nan_actual = self.inf_expected = self.inf_actual = 0
        self.sum_abs, self.ee, self.aa, self.ea, self.ed, self.dd = (Sum() for _ in range(6))

    def mismatch(self, count: int, first: int) -> None:
        """Count elements outside the tolerance, the first of which is at `first`."""
        if count:
            self.mismatches += count
            self.first = first if self.first < 0 else min(self.first, first)

    def spoil(self, where: NDArray[np.bool_]) -> None:
        """Count elements of this chunk that were finite and are not any more."""
        count = int(np.count_nonzero(where))
        if count and not self.spoiled:
            self.first_spoiled = self.at + int(where.argmax())
        self.spoiled += count

    def count(self, elements: int, pairs: int | None = None) -> None:
        """Move on by so many elements, of which so many are finite on both sides."""
        self.at += elements
        self.elements += elements
        self.pairs += elements if pairs is None else pairs

    def include(self, other: Tally) -> None:
        """Add what another tally found in other elements of the same tensors."""
        self.mismatch(other.mismatches, other.first)
        if other.spoiled:
            before = self.first_spoiled if self.spoiled else other.first_spoiled
            self.first_spoiled = min(before, other.first_spoiled)
        for mine, theirs in ((self.abs, other.abs), (self.rel, other.rel)):
            mine.see(theirs.size, theirs.at, theirs.expected, theirs.actual)
        self.ulp = max(self.ulp, other.ulp)
        counts = (
            "elements",
            "bit_equal",
            "spoiled",
            "pairs",
            "nan_expected",
            "nan_actual",
            "inf_expected",
            "inf_actual",
        )
        for name in counts:
            setattr(self, name, getattr(self, name) + getattr(other, name))
        for name in ("sum_abs", "ee", "aa", "ea", "ed", "dd"):
            getattr(self, name).include(getattr(other, name))

    def numbers(self, shape: tuple[int, ...], *, with_ulps: bool) -> TensorNumbers:
        seen, has_rel = self.pairs > 0, self.rel.at >= 0
        sqnr: float | None = None
        if seen:
            signal, noise = self.ee.value(), self.dd.value()
            sqnr = inf if not noise else 10 * (_log10(signal) - _log10(noise)) if signal else -inf
        return TensorNumbers(
            elements=self.elements,
            bit_equal=self.bit_equal,
            mismatches=self.mismatches,
            first_mismatch=index_of(self.first, shape) if self.mismatches else None,
            max_abs=float(self.abs.size) if seen else None,
            max_abs_at=index_of(self.abs.at, shape) if seen else None,
            mean_abs=as_float(self.sum_abs.value() / self.pairs) if seen else None,
            max_rel=float(self.rel.size) if has_rel else None,
            max_rel_at=index_of(self.rel.at, shape) if has_rel else None,
            max_ulp=self.ulp if seen and with_ulps else None,
            sqnr_db=sqnr,
            cosine=self._cosine() if seen else None,
            nan_expected=self.nan_expected,
            nan_actual=self.nan_actual,
            inf_expected=self.inf_expected,
            inf_actual=self.inf_actual,
            max_expected=self.abs.expected if seen else None,
            max_actual=self.abs.actual if seen else None,
        )

    def _cosine(self) -> float | None:
        """Of the angle between both; None if one of them is zero throughout.

        Vectors that are close are told apart by their difference: the quotient of sums that agree in all their digits
        would only show how the sums were rounded.
        """
        ee, aa, dd = self.ee.value(), self.aa.value(), self.dd.value()
        if ee <= 0 or aa <= 0:
            return None
        if 4 * dd < min(ee, aa):
            top = max(ee, aa)
            e, a, d = float(ee / top), float(aa / top), float(dd / top)
            longer = float(2 * self.ed.value() / top) + d
            apart = d - (longer / (sqrt(a) + sqrt(e))) ** 2
            return 1.0 - max(0.0, apart) / (2 * sqrt(a * e))
        ea = self.ea.value()
        size = sqrt(min(1.0, float(ea * ea / (ee * aa))))
        return size if ea >= 0 else -size


def as_float(value: Fraction) -> float:
    """The nearest float, infinite where there is none."""
    try:
        return float(value)
    except OverflowError:
        return inf if value > 0 else -inf


def _log10(value: Fraction) -> float:
    return log10(value.numerator) - log10(value.denominator)


def index_of(flat: int, shape: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(map(int, np.unravel_index(flat, shape)))
