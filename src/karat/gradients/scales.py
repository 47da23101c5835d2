"""Scales: how large a step is natural for each element, as powers of two."""

from __future__ import annotations

import numpy as np

from karat.gradients.flattened import Vector

# Elements this much smaller than the typical one are of another scale on purpose; between, they are just near zero.
OTHER_SCALE = 2.0**-24


def power_of_two(values: Vector) -> Vector:
    """The power of two at or below each value; 0 stays 0."""
    _, exponents = np.frexp(values)
    return np.where(values > 0, np.ldexp(1.0, exponents - 1), 0.0)


def typical(values: Vector) -> float:
    """The median size of the elements that are not zero; 1 if there are none."""
    sizes = np.abs(values[np.isfinite(values) & (values != 0)])
    return float(np.median(sizes)) if sizes.size else 1.0


def element_scales(point: Vector) -> Vector:
    """A power of two for each element: its own size, or a share of the typical one if it is near zero.

    Elements that are not finite get 0: nobody can step from there.
    """
    common = typical(point)
    sizes = np.abs(point)
    own = (sizes >= common / 4) | ((sizes > 0) & (sizes < common * OTHER_SCALE))
    with np.errstate(all="ignore"):
        scales = power_of_two(np.where(own, sizes, common / 4))
    return np.where(np.isfinite(point), np.clip(scales, 2.0**-960, 2.0**960), 0.0)
