"""Noise: how rough a forward is, from what its values do that no smooth function does.

A function that adds large numbers and takes them away again is off by far more than its outputs' last place.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from karat.gradients import tolerances
from karat.gradients.flattened import Flat, Vector
from karat.gradients.scales import element_scales, some

_STEPS = (2.0**-23, 2.0**-33)
"""So short that smooth functions are straight, so long that even float32 takes notice; and, if it looks rough, shorter."""
_ASIDE = 32
"""So many steps beside the point: kinks like to be at the point itself."""
_FOURTH = (1.0, -4.0, 6.0, -4.0, 1.0)
_SPREAD = float(np.linalg.norm(_FOURTH))
_ROOM = 4.0
_CLEAR = 16.0


def noise(source: Flat, base: Sequence[Vector], precision: str) -> list[Vector]:
    """What each element of a forward may be off: units in the last place, what it was seen to do, what two runs differ by."""
    again = source.forward(source.point)
    places = [tolerances.ULPS * tolerances.unit(precision) * np.abs(one) for one in base]
    rough = [_typical(one, at) for (one, _), at in zip(_line(source, _STEPS[0]), base, strict=True)]
    if any(np.any(one > _CLEAR * at) for one, at in zip(rough, places, strict=True)):
        closer = _line(source, _STEPS[1])
        rough = [_less(*each) for each in zip(rough, closer, base, strict=True)]
    return [
        np.maximum(least, _ROOM * seen) + _apart(one, two)
        for least, seen, one, two in zip(places, rough, base, again, strict=True)
    ]


def _apart(one: Vector, two: Vector) -> float:
    gaps = np.abs(one - two)
    return float(np.max(gaps[np.isfinite(gaps)], initial=0.0))


def _line(source: Flat, step: float) -> list[tuple[Vector, Vector]]:
    """Per output, fourth differences along a short line, which smooth functions have none of; and the way it went."""
    rng = np.random.default_rng(4)
    # Long mantissas: steps that fit a grid would hide that the function has one.
    line = [rng.uniform(0.5, 1.0, one.size) * element_scales(one) for one in source.point]
    runs = [
        source.forward([one + h * u for one, u in zip(source.point, line, strict=True)])
        for h in (step * (_ASIDE + k) for k in range(len(_FOURTH)))
    ]
    return [
        (
            np.abs(np.tensordot(_FOURTH, np.stack(values), 1)) / _SPREAD,
            np.abs(values[-1] - values[0]),
        )
        for values in zip(*runs, strict=True)
    ]


def _less(rough: Vector, closer: tuple[Vector, Vector], base: Vector) -> Vector:
    """What looks rough may be steep: a closer look tells, where the function still moves clearly."""
    less, way = closer
    known = np.isfinite(less) & np.isfinite(way)
    clear = known.any() and bool(np.mean((way > _CLEAR * less)[known]) > 0.5)
    return np.minimum(rough, _typical(less, base)) if clear else rough


def _typical(rough: Vector, base: Vector) -> Vector:
    """What is typical, absolutely or as a share, whichever is less: one element may be rough for a reason of its own."""
    sizes = np.abs(base)
    known = np.isfinite(rough) & np.isfinite(sizes) & (sizes > 0)
    if not known.any():
        return np.zeros_like(sizes)
    seen, size = some(rough[known]), some(sizes[known])
    common = float(np.median(seen))
    share = np.minimum(float(np.median(seen / size)) * sizes, common)
    # An element that is small by cancellation is rough by more than its share.
    return np.maximum(share, np.minimum(np.where(np.isfinite(rough), rough, 0.0), common))
