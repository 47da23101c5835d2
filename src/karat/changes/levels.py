"""Levels: what a stretch of values says of the level it is on.

In: values of one stretch, and the noise of the whole series. Out: `Level`. Pure.
"""

from __future__ import annotations

from statistics import NormalDist

import numpy as np

from karat.changes.change import Level
from karat.changes.robust import mean, robust_spread
from karat.changes.scanning import Floats, sum_variance

_CLIP = 2.5


def level(values: Floats, first: int, last: int, *, noise: float, rho: float, sure: float) -> Level:
    """The level of one stretch, from the index of its first observation to that of its last."""
    count = values.shape[0]
    middle = float(np.median(values))
    spread = robust_spread(values - middle)
    # A few values say little about their own spread.
    trusted = spread if count >= 8 else max(spread, noise)
    value = mean(np.clip(values, middle - _CLIP * trusted, middle + _CLIP * trusted))
    error = trusted * float(np.sqrt(sum_variance(count, rho))) / count
    reach = _quantile(sure, count) * error
    return Level(
        value=value, low=value - reach, high=value + reach, spread=spread, count=count, first=first, last=last
    )  # fmt: skip


def _quantile(sure: float, count: int) -> float:
    """Of Student's t, by its expansion about the normal one; few values share the noise of the series."""
    z = NormalDist().inv_cdf(0.5 + sure / 2)
    degrees = max(count - 1, 4)
    return z + (z**3 + z) / (4 * degrees) + (5 * z**5 + 16 * z**3 + 3 * z) / (96 * degrees**2)
