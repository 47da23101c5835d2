"""Tolerances: what round-off explains, per precision, and where a check stops being worth its name."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from karat.gradients.flattened import Vector

# Unit round-off, and the widest tolerance (relative to the derivative that was compared) that still certifies.
_PRECISIONS: Mapping[str, tuple[float, float]] = {
    "float64": (2.0**-53, 1e-5),
    "complex128": (2.0**-53, 1e-5),
    "float32": (2.0**-24, 3e-3),
    "complex64": (2.0**-24, 3e-3),
    "float16": (2.0**-11, 5e-3),
    "bfloat16": (2.0**-8, 5e-3),
}
TINY = float(np.finfo(np.float64).tiny)
_SAFE = 2.0**-900
"""Sums of squares beyond this may have lost terms to underflow or overflow."""
NOTHING = 2.0**-930
"""A derivative below this is lost to underflow somewhere."""
ULPS = 4.0
"""How many units in the last place a forward may be off at each element; libraries promise 1 to 4."""
DEVIATIONS = 6.5
"""Standard deviations that signs drawn independently of the errors leave room for: missed once in 10⁹ draws."""


def unit(precision: str) -> float:
    """The unit round-off of a precision; float16's for those that are not listed."""
    return _PRECISIONS.get(precision, _PRECISIONS["float16"])[0]


def cap(precision: str) -> float:
    """The widest relative tolerance that still certifies."""
    return _PRECISIONS.get(precision, _PRECISIONS["float16"])[1]


def combined(errors: Vector) -> float:
    """What a sum of errors with random signs stays below."""
    return DEVIATIONS * norm(errors)


def norm(values: Vector) -> float:
    """The Euclidean norm, without overflow."""
    with np.errstate(all="ignore"):
        # No dot product: its threads cost more than they save where many tests run at once.
        squared = float(np.sum(np.square(values)))
        if _SAFE < squared < 1 / _SAFE:
            return float(np.sqrt(squared))
        largest = float(np.max(np.abs(values), initial=0.0))
        if largest == 0 or not np.isfinite(largest):
            return largest
        return largest * float(np.sqrt(np.sum(np.square(values / largest))))


def analytic_floor(precision: str, size: float, count: int, unrest: float = 0.0) -> float:
    """The backward's own round-off: a few units for each level of the sums that made it, or what it was seen to do.

    `unrest` is the share of the gradient that a hair's breadth moves; a wild one buys no more than a small part of
    what still certifies.
    """
    depth = 1.0 + np.log2(max(2, count))
    share = 16 * depth * unit(precision) + 4 * min(unrest, cap(precision) / 1000)
    return float(DEVIATIONS * share * size)
