"""Sounding: what is known of the expected gradient along a few directions, to try guesses against at no cost.

Up to a few elements every coordinate is sounded, which is the whole gradient; beyond, some dense directions. What the
check has sounded already is taken over.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from karat.gradients.bisection import coordinate
from karat.gradients.directions import mixed
from karat.gradients.flattened import Vector
from karat.gradients.tolerances import norm

WHOLE = 20
"""Up to so many elements the expected gradient is sounded in full."""
WHOLE_EXACTLY = 64
"""The same where a sounding is one complex step."""
_DENSE = 4
_ROUND_OFF = 1e-10
"""Relative to the terms of a sum: what the guess itself may lose."""
_TELLING = 8.0
"""A guess is tried only where the wrong gradient is this many tolerances off."""

Slope = Callable[[Vector], tuple[float, float]]
"""A direction → the derivative along it, and how far that may be off."""


@dataclass(frozen=True, slots=True)
class Sounding:
    """One direction, and what the derivative along it is."""

    direction: Vector
    expected: float
    error: float

    def gap(self, candidate: Vector) -> float:
        """How far a gradient is off along the direction, in units of what may be."""
        terms = candidate * self.direction
        off = abs(float(np.sum(terms)) - self.expected)
        allowed = 4 * self.error + _ROUND_OFF * max(norm(terms), abs(self.expected))
        return off / allowed if allowed > 0 else (0.0 if off == 0 else np.inf)


@dataclass(frozen=True, slots=True)
class Soundings:
    """All directions that were sounded."""

    all: Sequence[Sounding]
    whole: bool
    """Every element was sounded by itself."""
    exact: float = 1e-6
    """How close a factor must be to 2 to be called 2."""

    def fits(self, candidate: Vector) -> bool:
        """Whether a gradient agrees with every sounding."""
        return bool(self.all) and all(one.gap(candidate) <= 1 for one in self.all)

    def tells(self, wrong: Vector) -> bool:
        """Whether the soundings are sharp enough that a guess which fits means something."""
        return any(one.gap(wrong) > _TELLING for one in self.all)

    def factor(self, wrong: Vector) -> float:
        """What the wrong gradient would have to be multiplied by; NaN where it is zero."""
        seen = np.array([float(np.dot(wrong, one.direction)) for one in self.all])
        wanted = np.array([one.expected for one in self.all])
        energy = float(np.dot(seen, seen))
        return float(np.dot(seen, wanted)) / energy if energy > 0 else np.nan

    def along(self, direction: Vector) -> tuple[float, float]:
        """The derivative along any direction, and its error; only where every element was sounded."""
        lengths = np.array([float(np.sum(one.direction)) for one in self.all])
        parts = np.divide(direction, lengths, out=np.zeros_like(direction), where=lengths != 0)
        values = parts * np.array([one.expected for one in self.all])
        errors = parts * np.array([one.error for one in self.all])
        return float(np.sum(values)), float(np.sum(np.abs(errors)))

    def expected(self, scales: Vector) -> Vector:
        """The whole expected gradient; only where every element was sounded."""
        values = np.array([one.expected for one in self.all])
        found: Vector = np.divide(values, scales, out=np.zeros_like(scales), where=scales > 0)
        return found


def sound(
    slope: Slope,
    scales: Vector,
    rng: np.random.Generator,
    *,
    exact: float = 1e-6,
    given: Sequence[Sounding] = (),
    most: int = WHOLE,
) -> Soundings:
    """Soundings of every element up to so many, else along dense directions; given ones are not made again."""
    given = [one for one in given if np.isfinite(one.expected) and np.isfinite(one.error)]
    whole = scales.size <= most
    if whole:
        drawn = [coordinate(scales, i) for i in range(scales.size)]
        found = [_taken(one, given) or Sounding(one, *slope(one)) for one in drawn]
    else:
        more = (mixed(scales.size, rng) * scales for _ in range(max(1, _DENSE - len(given))))
        found = [*given, *(Sounding(one, *slope(one)) for one in more)]
    known = [one for one in found if np.isfinite(one.expected) and np.isfinite(one.error)]
    return Soundings(known, whole=whole and len(known) == len(found), exact=exact)


def _taken(direction: Vector, given: Sequence[Sounding]) -> Sounding | None:
    return next((one for one in given if np.array_equal(one.direction, direction)), None)
