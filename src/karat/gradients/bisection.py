"""Bisection: which element of a gradient is wrong, in about log₂ N probes rather than N.

A probe sees the deviation ⟨found − expected, u⟩ of a whole support at once. Half of the support, asked with the same
signs, has its share of it, and the other half has the rest; the half with the larger share is kept.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from karat.gradients.directions import mixed
from karat.gradients.flattened import Vector

Deviation = Callable[[Vector], tuple[float, float]]
"""A direction → found minus expected along it, and how far that may be off."""

Places = NDArray[np.int64]

_ATTEMPTS = 3
_CLEAR = 2.0
"""A deviation counts if it is this many times what the oracle may be off."""


@dataclass(slots=True)
class Asking:
    """A deviation that is asked a bounded number of times."""

    deviation: Deviation
    most: int
    asked: int = 0
    rough: Callable[[Vector], float] | None = None
    """The deviation at less cost, without an error: good enough to choose between halves, where it is."""
    broke: Callable[[], bool] = bool
    """Whether what it may cost is spent; never, by default."""

    def __call__(self, direction: Vector) -> tuple[float, float]:
        """The deviation along a direction; (0, inf) where it is not known, or there have been too many."""
        if self.spent:
            return 0.0, np.inf
        self.asked += 1
        value, error = self.deviation(direction)
        return (value, error) if np.isfinite(value) and np.isfinite(error) else (0.0, np.inf)

    @property
    def spent(self) -> bool:
        """Whether no more may be asked."""
        return self.asked >= self.most or self.broke()

    def share(self, direction: Vector, *, rough: bool) -> float:
        """The deviation as well as it is needed to choose between halves."""
        if self.rough is None or not rough or self.spent:
            return self(direction)[0]
        self.asked += 1
        value = self.rough(direction)
        return value if np.isfinite(value) else 0.0

    def clear(self, direction: Vector) -> float:
        """The deviation where it is beyond doubt, else 0."""
        value, error = self(direction)
        return value if abs(value) > _CLEAR * error else 0.0


def locate(asking: Asking, scales: Vector, rng: np.random.Generator) -> int | None:
    """An element whose gradient is wrong, confirmed by a probe of it alone; None if none was found.

    Several wrong elements may cancel along one draw of signs, or lead to one that is not off beyond doubt; then
    signs are drawn anew.
    """
    support = np.flatnonzero(scales > 0)
    for attempt in range(_ATTEMPTS):
        direction = mixed(scales.size, rng) * scales
        whole = asking.clear(direction) if support.size else 0.0
        if whole == 0:
            continue
        place = _descend(asking, direction, support, whole, rough=attempt == 0)
        if asking.clear(coordinate(scales, place)):
            return place
    return None


def coordinate(scales: Vector, place: int) -> Vector:
    """The direction of one element alone, as long as its scale."""
    direction = np.zeros(scales.size)
    direction[place] = scales[place]
    return direction


def _descend(
    asking: Asking, direction: Vector, support: Places, whole: float, *, rough: bool
) -> int:
    while support.size > 1 and not asking.spent:
        left, right = np.array_split(support, 2)
        value = asking.share(_part(direction, left), rough=rough)
        rest = whole - value
        support, whole = (left, value) if abs(value) >= abs(rest) else (right, rest)
    return int(support[0])


def _part(direction: Vector, places: Places) -> Vector:
    part = np.zeros_like(direction)
    part[places] = direction[places]
    return part
