"""Sums that do not depend on the order of what is summed, nor overflow where the answer does not."""

from __future__ import annotations

from collections.abc import Iterable
from fractions import Fraction
from math import fsum, ldexp
from typing import Any

import numpy as np
from numpy.typing import NDArray

_MANY = 4096
_HUGE = 2.0**960
_DOWN = 128
"""Powers of two that huge terms are written smaller by: a few of them would sum up to infinity."""


class Sum:
    """A running sum of floats times powers of two; exact until it is asked for its value."""

    __slots__ = ("_terms",)

    def __init__(self) -> None:
        self._terms: dict[int, list[float]] = {}

    def add(self, term: float, exponent: int = 0) -> None:
        """Adds term · 2**exponent."""
        if abs(term) > _HUGE:
            term, exponent = ldexp(term, -_DOWN), exponent + _DOWN
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
    """Values whose squares can be summed as float64, and the power of two that makes them what they were.

    `top` is the size of the largest, where it is known already.
    """
    top = _top(values) if top is None else top
    if top == 0 or 1e-100 < top < 1e100:
        return values, 0
    real = values.real.dtype
    # Short of the type's largest exponent, so that the factor is a number of the type.
    most = int(np.finfo(real).maxexp) - 24
    exponent = max(-most, min(most, int(np.frexp(top)[1])))
    return values * np.ldexp(real.type(1), -exponent), exponent


def _top(values: NDArray[Any]) -> Any:
    """The largest part, in the type that holds it; the size of a complex number may be no float."""
    if values.dtype.kind == "c":
        return max(np.abs(values.real).max(), np.abs(values.imag).max())
    return np.abs(values).max()
