"""Cotangents: which mixture of an output's elements a backward is asked about."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from karat.gradients.differences import Slopes
from karat.gradients.directions import mixed
from karat.gradients.flattened import Vector
from karat.gradients.scales import power_of_two

DRAWN = 2
"""Cotangents per output."""
_SAME_SCALE = 2.0**12
_CERTAIN = 1e9

Mask = NDArray[np.bool_]


def drawn(base: Vector, slopes: Sequence[Slopes], masked: Mask, rng: np.random.Generator) -> Vector:
    """Random signs and magnitudes; 0 where masked. Outputs of very different sizes are brought to one size."""
    cotangent = mixed(base.size, rng) / balance(base, slopes)
    return np.where(masked, 0.0, cotangent)


def balance(base: Vector, slopes: Sequence[Slopes]) -> Vector:
    """What to divide each output element by, so that no large one drowns a small one; mostly ones."""
    sizes = np.where(np.isfinite(base), np.abs(base), 0.0)
    doubt = np.zeros_like(sizes)
    for one in slopes:
        known = np.isfinite(one.error) & np.isfinite(one.value)
        sizes = np.maximum(sizes, np.where(known, np.abs(one.value), 0.0))
        doubt = np.maximum(doubt, np.where(known, one.error, 0.0))
    there = sizes[sizes > 0]
    if not there.size or there.max() <= _SAME_SCALE * there.min():
        return np.ones_like(base)
    common = float(np.median(there))
    # An element whose slope is hardly known must not be made to count more than the others.
    scales = power_of_two(np.maximum(np.where(sizes > 0, sizes, common), _CERTAIN * doubt))
    clipped: Vector = np.clip(scales, 2.0**-960, 2.0**960)
    return clipped
