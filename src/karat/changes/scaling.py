"""Scaling: values as the detector can reckon with them.

In: one number per observation. Out: the same about 1 in size, and the noise that they cannot show: rounding. Pure.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from karat.changes.scanning import Floats

_FLOAT_NOISE = 1e-12
"""Relative differences below this are arithmetic, not measurement."""
_QUANTISED = 0.2887
"""The standard deviation of rounding to whole steps: 1/√12 of a step."""
_DIGITS = 12
_LARGEST = 1e6
_DIMMEST = 1e-100
"""A usual size this far below the largest is none: nearly all values are zero."""


class Scaled(NamedTuple):
    """Values about 1 in size."""

    values: Floats
    scale: float
    floor: float
    """Noise that there is, seen or not, in the scaled values."""


def scaled(values: Floats) -> Scaled:
    """Values in units of their usual size, so that squares neither overflow nor vanish.

    What differs by less than arithmetic does is made equal; a few that are a million times as large as usual are large
    enough.
    """
    sizes = np.abs(values)
    scale = _usual(sizes) if values.size else 0.0
    if scale < _DIMMEST * sizes.max(initial=0.0) or scale == 0:
        scale = float(sizes.max(initial=0.0))
    if scale == 0:
        return Scaled(np.zeros_like(values), 1.0, _FLOAT_NOISE)
    ratios = np.round(np.clip(values, -_LARGEST * scale, _LARGEST * scale) / scale, _DIGITS)
    return Scaled(
        ratios, scale, max(_FLOAT_NOISE, _QUANTISED * _resolution(ratios * scale, scale) / scale)
    )


def _usual(sizes: Floats) -> float:
    """The middle size; more where a tenth of all are too large for it: they are levels, and two of them may differ."""
    middle, upper = np.quantile(sizes, [0.5, 0.9])
    return float(max(middle, upper / _LARGEST if middle > 0 else 0.0))


def _resolution(values: Floats, scale: float) -> float:
    """The power of ten that all values are multiples of; 0 where they are not rounded that anyone could see."""
    if np.unique(values).size > 0.7 * values.size or not 1e-200 < scale < 1e200:
        return 0.0
    top = int(np.floor(np.log10(scale)))
    for exponent in range(top, top - _DIGITS, -1):
        steps = values / 10.0**exponent
        if np.abs(steps - np.round(steps)).max() < 1e-6:
            return float(10.0**exponent)
    return 0.0
