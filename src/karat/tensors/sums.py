"""Sums that do not depend on the order of what is summed, nor overflow where the answer does not."""

from __future__ import annotations

from collections.abc import Iterable
from fractions import Fraction
from math import frexp, fsum
from typing import Any

import numpy as np
from numpy.typing import NDArray

_MANY = 4096


class Sum:
    """A running sum of floats times powers of two; exact until it is asked for its value."""

    __slots__ = ("_terms",)

    def __init__(self) -> None:
        self._terms: dict[int, list[float]] = {}

    def add(self, term: float, exponent: int = 0) -> None:
        """Adds term · 2**exponent."""
        terms = self._terms.setdefault(exponent, [])
        terms.append(term)
        if len(terms) >= _MANY:
            terms[:] = _condensed(terms)

    def include(self, other: Sum) -> None:
        """Adds all that the other one was given."""
        for exponent, terms in other._terms.items():
            for term in terms:
                self.add(term, exponent)

    def value(self) -> Fraction:
        """The sum, of correctly rounded parts."""
        scaled = (
            Fraction(fsum(terms)) * Fraction(2) ** exponent
            for exponent, terms in self._terms.items()
        )
        return sum(scaled, Fraction(0))


def _condensed(terms: Iterable[float]) -> list[float]:
    """The same sum in few terms that do not overlap (Shewchuk's expansion)."""
    parts: list[float] = []
    for term in terms:
        rest, kept = term, 0
        for part in parts:
            high, low = (rest, part) if abs(rest) >= abs(part) else (part, rest)
            rest = high + low
            error = low - (rest - high)
            if error:
                parts[kept] = error
                kept += 1
        parts[kept:] = [rest]
    return parts


def scaled(values: NDArray[Any], top: float | None = None) -> tuple[NDArray[Any], int]:
    """Values whose squares can be summed, and the power of two that makes them what they were.

    `top` is the size of the largest, where it is known already.
    """
    top = _top(values) if top is None else top
    if top == 0 or 1e-100 < top < 1e100:
        return values, 0
    exponent = max(-1000, min(1000, frexp(top)[1]))
    return values * 2.0**-exponent, exponent


def _top(values: NDArray[Any]) -> float:
    """The largest part; the size of a complex number may be no float."""
    if values.dtype.kind == "c":
        return float(max(np.abs(values.real).max(), np.abs(values.imag).max()))
    return float(np.abs(values).max())
