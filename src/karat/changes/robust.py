"""Robust measures of a row of values: those that a few wild ones hardly move. Pure."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from karat.changes.scanning import Floats

CLIP = 4.0
"""Values count no further than this many standard deviations from their level."""


def robust_spread(deviations: Floats) -> float:
    """The standard deviation that the bulk of deviations from a level has."""
    sizes = np.abs(deviations)
    middle = 1.4826 * float(np.median(sizes))
    # More than half of them equal: quantised values.
    return middle if middle > 0 else 1.2533 * float(sizes.mean())


def mean(values: npt.ArrayLike) -> float:
    """The mean, which does not overflow where its values do not."""
    array = np.asarray(values, dtype=np.float64)
    scale = float(np.abs(array).max(initial=0.0))
    return 0.0 if scale == 0 else float((array / scale).mean() * scale)


def clipped(values: Floats) -> Floats:
    """Values about their median in standard deviations, clipped, with mean zero."""
    centred = values - np.median(values)
    spread = robust_spread(centred)
    if spread <= 0:
        return np.zeros_like(values)
    inside = np.clip(centred / spread, -CLIP, CLIP)
    return np.asarray(inside - inside.mean())
