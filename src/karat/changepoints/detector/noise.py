"""Noise: how far values stray from their levels, how alike neighbours are, and how likely chance makes a shift. Pure.

What chance does to the mean of a few neighbours is told by the values themselves: by what is left of them all about their
levels, wild ones included (the rate at which a mean strays as far, after Cramér), so that the shape of the noise does not matter.
Nobody knows of values wilder than any seen: two, one on either side, are taken for seen.

Steps look like autocorrelation and autocorrelation looks like steps. What levels explain is therefore weighed against what
plain autocorrelation does: levels that gain little per cut may have been cut out of autocorrelated noise, which hides
some of it. How much was found by simulation, and is added back.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.floating]

CLIP = 4.0  # Values count no further than this many standard deviations from their level.
_CLIP = 3.0
_BINS = 240
_TINY = 1e-300
_ENOUGH = 120  # values, of which two wilder ones could well have been seen
_TELL = 20  # values that tell of their autocorrelation
_MOST_ALIKE = 0.7
_DOUBTED = 3.0  # logarithms of the length that a cut gains, below which it may be autocorrelation
_GIVEN_BACK = 10.0  # of the autocorrelation, per piece and point, that doubtful cuts hide
_CAREFUL = 0.8  # standard errors that are added to an autocorrelation, where there clearly is one
_SWITCHES = 8
_POINTS_PER_SWITCH = 12  # jumps between the same two modes that often are noise rather than steps
_APART = 3.2  # standard deviations between two modes that are two
_BETWEEN = 0.25  # of the way from mode to mode, on either side of the middle
_FAR_OFF = 0.6


def robust_spread(deviations: Floats) -> float:
    """The standard deviation that the bulk of deviations from a level has."""
    sizes = np.abs(deviations)
    if not sizes.size:
        return 0.0
    middle = 1.4826 * float(np.median(sizes))
    # More than half of them equal: quantised values.
    return middle if middle > 0 else 1.2533 * float(sizes.mean())


def mean(values: npt.ArrayLike) -> float:
    """The mean, which does not overflow where its values do not."""
    array = np.asarray(values, dtype=np.float64)
    scale = float(np.abs(array).max(initial=0.0))
    return 0.0 if scale == 0 else float((array / scale).mean() * scale)


def sum_variance(count: npt.ArrayLike, rho: float) -> Floats:
    """The variance of a sum of `count` neighbours of unit variance with autocorrelation `rho`, as AR(1) has it."""
    k = np.asarray(count, dtype=np.float64)
    if rho == 0:
        return k
    return np.asarray(k * (1 + rho) / (1 - rho) - 2 * rho * (1 - rho**k) / (1 - rho) ** 2)


class Pieces(NamedTuple):
    """A row cut into pieces."""

    edges: npt.NDArray[np.int64]
    counts: npt.NDArray[np.int64]
    of: npt.NDArray[np.int64]  # The piece of every value.

    def means(self, values: Floats) -> Floats:
        return np.asarray(np.add.reduceat(values, self.edges[:-1]) / self.counts)

    def medians(self, values: Floats) -> Floats:
        return np.array([np.median(values[a:b]) for a, b in zip(self.edges[:-1], self.edges[1:], strict=True)])


def pieces(cuts: Sequence[int], n: int) -> Pieces:
    edges = np.array([0, *cuts, n])
    counts = np.diff(edges)
    return Pieces(edges, counts, np.repeat(np.arange(counts.shape[0]), counts))


def _left_over(values: Floats, scales: Floats, cut: Pieces) -> tuple[Floats, npt.NDArray[np.bool_]]:
    """What is left about the levels of the pieces, wild values clipped; and which neighbours are in one piece."""
    left = (values - cut.medians(values)[cut.of]) / scales
    spread = robust_spread(left)
    left = np.clip(left, -_CLIP * spread, _CLIP * spread) if spread > 0 else left
    return left - cut.means(left)[cut.of], cut.of[1:] == cut.of[:-1]


def alike(values: Floats, scales: Floats, cuts: Sequence[int]) -> float:
    """The correlation of neighbours within the pieces."""
    n = values.shape[0]
    left, inside = _left_over(values, scales, pieces(cuts, n))
    total, pairs, free = float(left @ left), int(inside.sum()), n - len(cuts) - 1
    if n < _TELL or min(pairs, free) < _TELL // 2 or total <= 0:
        return 0.0
    found = float((left[1:] * left[:-1])[inside].sum()) / pairs * free / total
    # Without their mean neighbours look less alike: by about one over the length of a piece.
    return float(max(0.0, found + (len(cuts) + 1) / n))


def gain(values: Floats, scales: Floats, cuts: Sequence[int]) -> float:
    """What a cut explains that autocorrelation does not, in logarithms of the length."""
    n = values.shape[0]
    unexplained = []
    for tried in (cuts, ()):
        left, inside = _left_over(values, scales, pieces(tried, n))
        rho = np.clip((left[1:] * left[:-1])[inside].sum() / max((left[:-1] ** 2)[inside].sum(), _TINY), 0, 0.99)
        shocks = np.append(left[0], np.where(inside, left[1:] - rho * left[:-1], left[1:]))
        unexplained.append(max(float(shocks @ shocks), _TINY))
    return float(n * np.log(unexplained[1] / unexplained[0]) / len(cuts) / np.log(n)) if cuts else 0.0


def autocorrelation(values: Floats, scales: Floats, cuts: Sequence[int]) -> float:
    """The correlation of neighbours to reckon with, 0 to 0.95."""
    n = values.shape[0]
    doubt = float(np.clip(_DOUBTED - gain(values, scales, cuts), 0, 1))
    found = alike(values, scales, cuts) * (1 + _GIVEN_BACK * doubt * len(cuts) / n)
    # It is known to about 1/√n only, and too little of it does more harm than too much.
    error = 1 / np.sqrt(n)
    return float(min(_MOST_ALIKE, found + _CAREFUL * error * min(1.0, found / (1.5 * error)) * doubt))


class NoiseShape:
    """How likely the mean of a few values strays how far, from a sample of them in standard deviations."""

    def __init__(self, sample: Floats) -> None:
        at = np.linspace(-CLIP, CLIP, _BINS + 1)
        places = np.rint((np.clip(sample, -CLIP, CLIP) + CLIP) / (2 * CLIP) * _BINS).astype(int)
        counts = np.bincount(places, minlength=_BINS + 1).astype(np.float64)
        counts[[0, -1]] += min(1.0, sample.shape[0] / _ENOUGH)
        share = counts / counts.sum()
        self.mean = float(share @ at)
        self._rates = []
        tilt = np.geomspace(0.02, 40, 90)[:, None]
        for side in (at - self.mean, self.mean - at):
            exponents = tilt * side
            top = exponents.max(axis=1, keepdims=True)
            weights = np.exp(exponents - top) * share
            total = weights.sum(axis=1)
            strayed = weights @ side / total
            rates = tilt[:, 0] * strayed - np.log(total) - top[:, 0]
            self._rates.append((np.append(0, strayed), np.append(0, rates)))

    def rate(self, strayed: Floats) -> Floats:
        """Per value: the exponent at which the chance falls that a mean strays this far, with its sign."""
        far = np.abs(strayed)
        up, down = (np.interp(far, *table) for table in self._rates)
        return np.asarray(np.where(strayed > 0, up, down))


def two_modes(values: Floats) -> bool:
    """Whether values jump to and fro between two modes that are clearly apart, too often to be steps."""
    upper = _upper_mode(values)
    if upper is None or np.count_nonzero(np.diff(upper)) < max(_SWITCHES, len(values) // _POINTS_PER_SWITCH):
        return False
    # One mode mostly on one side of a split and the other on the other is a step with wild values.
    explained, left = explained_by_split(upper, 1)
    return bool(explained.max() <= left.min())


def _upper_mode(values: Floats) -> npt.NDArray[np.bool_] | None:
    """Which values are of the upper of two modes; None where there are not two."""
    ordered = np.sort(values)
    n = ordered.shape[0]
    tenth = max(2, n // 10)
    gaps = np.diff(ordered)[tenth - 1 : n - tenth]
    if gaps.size == 0:
        return None
    place = int(np.argmax(gaps)) + tenth
    low, high = ordered[:place], ordered[place:]
    low_middle, high_middle = float(np.median(low)), float(np.median(high))
    apart = high_middle - low_middle
    inner = max(robust_spread(low - low_middle), robust_spread(high - high_middle))
    # More levels than two make two wide groups: hardly a value of a mode is farther off than from mode to mode.
    far = np.abs(np.concatenate([low - low_middle, high - high_middle])) > _FAR_OFF * apart
    clear = apart > 0 and apart >= _APART * inner and far.mean() <= 0.05
    if not clear:
        return None
    # What lies between the modes is of that of the value before it: so noise alone does not switch.
    far = np.abs(values - (low_middle + high_middle) / 2) > _BETWEEN * apart
    return (values > (low_middle + high_middle) / 2)[np.maximum.accumulate(np.where(far, np.arange(n), 0))]


def explained_by_split(row: npt.NDArray[np.generic], fewest: int) -> tuple[Floats, Floats]:
    """What each split explains of the sum of squares, and what it leaves."""
    n = row.shape[0]
    centred = row - row.mean()
    k = np.arange(fewest, n - fewest + 1)
    sums = np.cumsum(centred)[fewest - 1 : n - fewest]
    explained = sums**2 * n / (k * (n - k))
    return explained, np.maximum(float(centred @ centred) - explained, 0)
