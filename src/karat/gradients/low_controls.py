"""Negative controls in low precision: the same judgement on gradients that were made wrong.

A bfloat16 element cannot show 1%, so the corruptions are as large as the precision needs and no larger than a
limit per dtype; their names say how large. What goes unnoticed at the limit makes the evidence vacuous.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from karat.gradients.low_judging import Limits, judge, rms
from karat.gradients.rounding import Precision

if TYPE_CHECKING:
    Array = np.ndarray[Any, np.dtype[Any]]

_FACTORS = (1.01, 1.02, 1.05, 1.1, 1.25, 1.5, 2.0, 3.0)
_LARGEST_FACTOR = ((1e-6, 1.01), (1e-3, 1.1), (1e-2, 1.25))
"""Unit roundoff up to … → the largest factor that may be needed to be seen on the whole tensor."""
_LARGEST_STEP = ((1e-6, 1.1), (1e-3, 1.5), (1e-2, 2.0))
"""The same for one element alone."""


def controls(
    low: Array, double: Array, limits: Limits, precision: Precision, rng: np.random.Generator
) -> Mapping[str, bool]:
    """Corruption → whether it was noticed."""
    if not np.any(double):
        return {}
    tried = {"zero": _fails(np.zeros_like(low), double, limits)}
    tried["sign"] = _fails(-low, double, limits)
    tried |= _scaled(low, double, limits, _most(_LARGEST_FACTOR, precision))
    tried |= _one_element(low, double, limits, _most(_LARGEST_STEP, precision), rng)
    turned = _turned(low)
    if turned is not None and np.abs(turned - low).max() > 4 * limits.element.max():
        tried["transposed"] = _fails(turned, double, limits)
    return tried


def _fails(low: Array, double: Array, limits: Limits) -> bool:
    return judge(low, double, limits).failed


def _most(table: tuple[tuple[float, float], ...], precision: Precision) -> float:
    return next((most for roundoff, most in table if precision.roundoff <= roundoff), 3.0)


def _scaled(low: Array, double: Array, limits: Limits, most: float) -> Mapping[str, bool]:
    """The smallest factor of a fixed list that is noticed, or the largest that may be tried."""
    for factor in _factors(limits.slope, most):
        seen = _fails(low * factor, double, limits)
        if seen or factor == most:
            return {f"x{factor:g}": seen}
    return {}


def _one_element(
    low: Array, double: Array, limits: Limits, most: float, rng: np.random.Generator
) -> Mapping[str, bool]:
    """One element, drawn from those of middling size that are no worse conditioned than most."""
    size = rms(double).reshape(-1)
    large = np.flatnonzero(size >= np.median(size[size > 0]))
    hidden = limits.element.reshape(-1)[large] / size[large]
    place = int(rng.choice(large[hidden <= np.median(hidden)]))
    needed = float(limits.element.reshape(-1)[place] / size[place])
    changed = low.copy()
    flat = changed.reshape(len(low), -1)
    own = flat[:, place].copy()
    for factor in _factors(needed, most):
        flat[:, place] = own * factor
        seen = _fails(changed, double, limits)
        if seen or factor == most:
            return {f"one element x{factor:g}": seen}
    return {}


def _factors(needed: float, most: float) -> list[float]:
    """Those worth trying: smaller ones than the limit cannot be noticed."""
    allowed = [one for one in _FACTORS if one <= most]
    return [one for one in allowed if one - 1 > needed] or allowed[-1:]


def _turned(low: Array) -> Array | None:
    """The last two axes of equal length exchanged; None where the shape does not allow it."""
    if low.ndim < 3 or low.shape[-1] != low.shape[-2] or low.shape[-1] < 2:
        return None
    return np.ascontiguousarray(np.swapaxes(low, -1, -2))
