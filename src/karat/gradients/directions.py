"""Directions: where to step, and which mixture of outputs to look at.

Signs are Rademacher's. Magnitudes between 1/2 and 1, in steps of 1/256, stand beside them: with signs alone
two equal errors cancel in every second draw, and short magnitudes keep `x + h` exact.
"""

from __future__ import annotations

from itertools import product

import numpy as np

from karat.gradients.flattened import Vector
from karat.gradients.problem import Slot

DENSE = 2
"""Dense directions per input, each of which sees every element."""
SMALL = 8
"""Up to so many elements the whole Jacobian is looked at, column by column."""
MOST_BOUNDARY = 16


def signs(count: int, rng: np.random.Generator) -> Vector:
    """±1, each with probability one half."""
    return rng.integers(0, 2, count).astype(np.float64) * 2 - 1


def mixed(count: int, rng: np.random.Generator) -> Vector:
    """Random signs with random magnitudes from 1/2 to just below 1."""
    return signs(count, rng) * rng.integers(128, 256, count).astype(np.float64) / 256


def directions(
    slot: Slot, point: Vector, rng: np.random.Generator, *, whole: bool = True
) -> list[Vector]:
    """Dense ones first, then the boundary, or every coordinate where there are few."""
    count = point.size
    drawn = [mixed(count, rng) for _ in range(DENSE)]
    if count <= SMALL and whole:
        return drawn[:1] + ([] if count == 1 else list(np.eye(count)))
    return [*drawn, boundary(slot, point, rng)]


def boundary(slot: Slot, point: Vector, rng: np.random.Generator) -> Vector:
    """The corners and the extreme values alone, so that nothing else drowns them."""
    places = boundary_places(slot, point)
    sparse = np.zeros(point.size)
    sparse[places] = signs(len(places), rng) * _distinct(len(places))
    return sparse


def boundary_places(slot: Slot, point: Vector) -> list[int]:
    """First and last, the ends of every axis, the largest and the smallest |x|."""
    width = 2 if slot.complex else 1
    corners = product(*[(0, extent - 1) for extent in slot.shape[-4:]])
    lead = (0,) * max(0, len(slot.shape) - 4)
    flat = [
        int(np.ravel_multi_index(lead + corner, slot.shape)) * width + part
        for corner in corners
        for part in range(width)
    ]
    sizes = np.where(np.isfinite(point), np.abs(point), 0.0)
    wanted = [0, point.size - 1, int(sizes.argmax()), int(sizes.argmin()), *flat]
    return list(dict.fromkeys(wanted))[:MOST_BOUNDARY]


def _distinct(count: int) -> Vector:
    return (128 + (np.arange(count) * 37) % 128) / 256
