"""Dependence: how much a value tells about its neighbour, steps set aside.

In: values. Out: an autocorrelation to reckon with, and whether the values jump between two modes. Pure.

Steps look like autocorrelation and autocorrelation looks like steps. So a first, generous cut sets everything aside that
might be a step, and neighbours are compared within its pieces only, by differences, which no level enters. Pieces that
were cut out of plain autocorrelated noise hide some of it: how much was found by simulation, and is given back.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import numpy as np
import numpy.typing as npt

from karat.changes.locating import fit
from karat.changes.robust import CLIP, robust_spread
from karat.changes.scanning import Floats, clearest

_GENEROUS = 3.7
_GENEROUS_NEAR = 6.5
_FAR = (5, 6, 7, 8)
"""Lags at which neighbours are taken to be strangers."""
_GIVEN_BACK = 10.0
"""Of the autocorrelation, per piece and point, that cutting hides."""
_CAREFUL = 0.8
"""Standard errors that are added to an autocorrelation, where there clearly is one."""
_SWITCHES = 6
_POINTS_PER_SWITCH = 12
"""Jumps between the same two modes that often are noise rather than steps."""
_APART = 3.2
"""Standard deviations between two modes that are two."""
_FAR_OFF = 0.6


def generous_cuts(values: Floats, fewest: int) -> list[int]:
    """Everywhere a step might be."""
    cuts: list[int] = []
    near = robust_spread(np.diff(values)) / np.sqrt(2)
    waiting = [(0, values.shape[0])]
    while waiting:
        start, stop = waiting.pop()
        found = _might_be(values[start:stop], near, fewest)
        if found:
            own = fit(values, [start + cut for cut in found], start, stop, fewest)
            edges = [start, *own, stop]
            waiting.extend(pairwise(edges))
            cuts.extend(edges[1:-1])
    return sorted(cuts)


def _might_be(values: Floats, near: float, fewest: int) -> tuple[int, ...]:
    """Cuts that are clear by the spread of the values, or clearer by that of their differences, which steps do not enter."""
    centred = values - np.median(values)
    spread = robust_spread(centred)
    if spread <= 0:
        return ()
    row = np.clip(centred, -CLIP * spread, CLIP * spread)
    row -= row.mean()
    own = float(row.std())
    height, found = clearest(row, spread=own, fewest=fewest)
    return found if height > _GENEROUS or height * own > _GENEROUS_NEAR * near > 0 else ()


def autocorrelation(values: Floats, fewest: int) -> float:
    """The correlation of neighbours to reckon with, 0 to 0.95."""
    n = values.shape[0]
    if n < 20:
        return 0.0
    cuts = [] if two_modes(values) else generous_cuts(values, fewest)
    found = _within(values, cuts) * (1 + _GIVEN_BACK * len(cuts) / n)
    # It is known to about 1/√n only, and too little of it does more harm than too much.
    error = 1 / np.sqrt(n)
    return float(min(0.95, found + _CAREFUL * error * min(1.0, found / (1.5 * error))))


def _within(values: Floats, cuts: Sequence[int]) -> float:
    """From differences within the pieces: those of neighbours against those of strangers."""
    n = values.shape[0]
    piece = np.zeros(n, dtype=np.int64)
    piece[list(cuts)] = 1
    piece = np.cumsum(piece)
    level = np.concatenate(
        [np.full(part.shape[0], np.median(part)) for part in np.split(values, cuts)]
    )
    residuals = values - level
    spread = robust_spread(residuals)
    residuals = np.clip(residuals, -CLIP * spread, CLIP * spread)

    def difference(lag: int) -> tuple[float, int]:
        inside = piece[lag:] == piece[:-lag]
        return float((((residuals[lag:] - residuals[:-lag]) ** 2)[inside]).sum()), int(inside.sum())

    near, pairs = difference(1)
    far = [difference(lag) for lag in _FAR if lag < n]
    total, strangers = sum(part[0] for part in far), sum(part[1] for part in far)
    if strangers < 20 or total <= 0 or pairs == 0:
        return 0.0
    return max(0.0, 1 - near / pairs * strangers / total)


def two_modes(values: Floats) -> bool:
    """Whether values jump to and fro between two modes that are clearly apart, too often to be steps."""
    upper = _upper_mode(values)
    if upper is None:
        return False
    switches = int(np.count_nonzero(upper[1:] != upper[:-1]))
    return switches >= max(_SWITCHES, len(values) // _POINTS_PER_SWITCH) and not _one_split(upper)


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
    apart = float(np.median(high) - np.median(low))
    inner = max(robust_spread(low - np.median(low)), robust_spread(high - np.median(high)))
    # More levels than two make two wide groups: hardly a value of a mode is farther off than from mode to mode.
    far = np.abs(np.concatenate([low - np.median(low), high - np.median(high)])) > _FAR_OFF * apart
    clear = apart > 0 and apart >= _APART * inner and far.mean() <= 0.05
    return values >= ordered[place] if clear else None


def _one_split(upper: npt.NDArray[np.bool_]) -> bool:
    """Whether one mode is mostly on one side of a split and the other on the other: a step with wild values."""
    n = upper.shape[0]
    centred = upper - upper.mean()
    k = np.arange(1, n)
    explained = np.cumsum(centred)[:-1] ** 2 * n / (k * (n - k))
    return bool(explained.max() > 0.5 * (centred**2).sum())
