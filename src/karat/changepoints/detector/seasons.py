"""Seasons: what comes again, at the weekend, at night, or every so many points, and is no step each time. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from itertools import pairwise
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from karat.changepoints.detector.noise import Floats, robust_spread

_CYCLES = 4  # that a season must be seen
_LONGEST = 60
_CLEAR = 7.0  # standard errors: of many periods tried the clearest, and neighbours may be alike
_SHARE = 0.25  # of the variance that a season explains
_AS_GOOD = 0.85  # a shorter period that explains so much of what the best explains is the period
_AGAIN = 0.6  # correlation of a quarter with the others
_STAYS = 0.5  # of the season: how far the level moves in one cycle at most
_CLIP = 3.0


class Season(NamedTuple):
    """What comes again."""

    words: str
    offsets: Floats  # What each value has from it.


def find_season(values: Floats, times: Sequence[datetime | None] = ()) -> Season | None:
    """The season of a row, where it clearly has one."""
    n = values.shape[0]
    size = float(np.abs(values).max(initial=0.0))
    if size == 0:
        return None
    values = values / size
    best: list[tuple[float, str, Floats]] = []
    for words, period, groups in _tried(n, times):
        # Against the mean of one period about each value, which has no season.
        sums = np.append(0.0, np.cumsum(values))
        low = np.clip(np.arange(n) - period // 2, 0, n - period)
        level = (sums[low + period] - sums[low]) / period
        rest = values - level
        rest -= np.median(rest)
        spread = robust_spread(rest)
        if spread <= 0:
            continue
        rest = np.clip(rest, -_CLIP * spread, _CLIP * spread)
        counts = np.bincount(groups)
        means = np.bincount(groups, rest) / np.maximum(counts, 1)
        explained, total = float(counts @ means**2), float(rest @ rest)
        degrees = np.count_nonzero(counts) - 1
        if total <= 0 or explained >= total or degrees < 1:
            continue
        ratio = explained / (total - explained) * (n - degrees) / degrees
        clear = (ratio ** (1 / 3) - (1 - 2 / (9 * degrees))) / np.sqrt(2 / (9 * degrees))
        share = 1 - (total - explained) / (n - degrees) / (total / n)
        # It comes in each quarter as in the others; steps do not.
        cells = groups + counts.size * (np.arange(n) * _CYCLES // n)
        table = np.bincount(cells, rest, _CYCLES * counts.size) / np.maximum(
            np.bincount(cells, minlength=_CYCLES * counts.size), 1
        )
        quarters = table.reshape(_CYCLES, counts.size)
        others = quarters.sum(axis=0) - quarters
        sizes = np.sqrt((quarters**2).sum(axis=1) * (others**2).sum(axis=1))
        again = bool(((quarters * others).sum(axis=1) > _AGAIN * sizes).all())
        # Stairs of one length would be a season, if the level stayed.
        stays = float(np.median(np.abs(level[period:] - level[:-period]))) < _STAYS * float(np.ptp(means))
        if clear > _CLEAR and share > _SHARE and stays and again:
            best.append((share, words, (means - means[groups].mean())[groups]))
    top = max((share for share, _, _ in best), default=0.0)
    return next((Season(words, offsets * size) for share, words, offsets in best if share >= _AS_GOOD * top), None)


def _tried(n: int, times: Sequence[datetime | None]) -> list[tuple[str, int, npt.NDArray[np.int64]]]:
    """What is tried: words, how many values a cycle has, and which part of it each value is of."""
    known = [time for time in times if time is not None]
    tried = []
    if len(known) == n and n > 1:
        each = sorted(b - a for a, b in pairwise(known))[n // 2]
        if each == timedelta(days=1):
            tried.append(("differs by the day of the week", 7, np.array([time.weekday() for time in known])))
        elif timedelta(0) < each <= timedelta(hours=6):
            cycle = round(timedelta(days=1) / each)
            tried.append(("differs by the hour of the day", cycle, np.array([time.hour for time in known])))
    at = np.arange(n)
    tried += [(f"comes again every {period} points", period, at % period) for period in range(3, _LONGEST + 1)]
    return [one for one in tried if one[1] * _CYCLES <= n]
