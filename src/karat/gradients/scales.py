"""Scales: how large a step is natural for each element, as powers of two."""

from __future__ import annotations

import numpy as np

from karat.gradients.flattened import Vector

# Elements this much smaller than the typical one are of another scale on purpose; between, they are just near zero.
OTHER_SCALE = 2.0**-24
_ENOUGH = 2**14


def power_of_two(values: Vector) -> Vector:
    """The power of two at or below each value; 0 stays 0."""
    _, exponents = np.frexp(values)
    return np.where(values > 0, np.ldexp(1.0, exponents - 1), 0.0)


def some(values: Vector) -> Vector:
    """The values, or some thousands of them from everywhere, where there are so many that a median would take long."""
    # An odd stride falls into step with no power of two.
    return values[:: values.size // _ENOUGH | 1] if values.size > 4 * _ENOUGH else values


def typical(values: Vector) -> float:
    """The median size of the elements that are not zero; 1 if there are none."""
    for part in (some(values), values):
        sizes = np.abs(part[np.isfinite(part) & (part != 0)])
        if sizes.size:
            return float(np.median(sizes))
    return 1.0


def natural_sizes(values: Vector) -> Vector:
    """The size of each element, or a quarter of the typical one for those that just happen to be near zero."""
    common = typical(values)
    sizes = np.abs(values)
    own = (sizes >= common / 4) | ((sizes > 0) & (sizes < common * OTHER_SCALE))
    return np.where(own, sizes, common / 4)


def element_scales(point: Vector) -> Vector:
    """A power of two for each element: its own size, or a share of the typical one if it is near zero.

    Elements that are not finite get 0: nobody can step from there.
    """
    with np.errstate(all="ignore"):
        scales = power_of_two(natural_sizes(point))
    return np.where(np.isfinite(point), np.clip(scales, 2.0**-960, 2.0**960), 0.0)
