"""Kinks: where a function has two slopes, one on each side; and points nearby that may have one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from karat.gradients import tolerances
from karat.gradients.directions import mixed
from karat.gradients.flattened import Vector
from karat.gradients.scales import element_scales

if TYPE_CHECKING:
    from karat.gradients.differences import Slopes

ATTEMPTS = 4
"""How many points nearby are tried where the given one says too little."""
_REACH = 2.0**-3


def singular(even: Sequence[Vector], roundoff: Vector) -> NDArray[np.bool_]:
    """Where the even part grows as the step shrinks: no slope on either side (√|x| at 0)."""
    found: NDArray[np.bool_] = np.abs(even[-1]) > 1.5 * np.abs(even[0]) + 10 * roundoff
    return found


def kinked(jump: Vector, error: Vector, slope: Vector, first: Vector) -> NDArray[np.bool_]:
    """Where the one-sided slopes differ by more than error and curvature explain."""
    size = np.abs(jump)
    found: NDArray[np.bool_] = (size > 10 * error) & (size > 1e-6 * (np.abs(slope) + np.abs(first)))
    return found


def interval(cotangent: Vector, slope: Vector, jump: Vector) -> tuple[float, float]:
    """The least and the largest derivative that lies between the one-sided slopes."""
    middle = cotangent * slope
    half = np.abs(cotangent * jump) / 2
    return float(np.sum(middle - half)), float(np.sum(middle + half))


def outside(
    direction: Vector, slopes: Slopes, cotangent: Vector, gradient: Vector, precision: str
) -> str:
    """What is wrong with a gradient at kinks; nothing if it lies between the one-sided slopes."""
    used = cotangent != 0
    v = cotangent[used]
    low, high = interval(v, slopes.value[used], slopes.jump[used])
    with np.errstate(all="ignore"):
        found = float(np.sum((gradient * direction)[direction != 0]))
        size = max(tolerances.norm(v * slopes.value[used]), tolerances.norm(v * slopes.jump[used]))
        floor = tolerances.analytic_floor(precision, size, gradient.size)
        room = tolerances.combined(v * slopes.error[used]) + floor
    if low - room <= found <= high + room or not np.isfinite(room):
        return ""
    return (
        f"at a kink the one-sided slopes allow {low:.6g} to {high:.6g} along a probe,"
        f" the gradient says {found:.6g}"
    )


def nearby(point: Sequence[Vector], attempt: int, rng: np.random.Generator) -> list[Vector]:
    """A point an eighth away: to both sides at first, then inwards from either edge of a domain."""
    return [
        one
        + np.where(np.isfinite(one), _REACH * element_scales(one) * _drawn(one, attempt, rng), 0)
        for one in point
    ]


def _drawn(one: Vector, attempt: int, rng: np.random.Generator) -> Vector:
    drawn = mixed(one.size, rng)
    if attempt % ATTEMPTS == 1:
        return np.abs(drawn)
    return -np.abs(drawn) if attempt % ATTEMPTS == 2 else drawn
