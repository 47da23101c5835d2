"""Trends: stairs that are a slow rise or fall; and seasons: what comes again, at the weekend or at night, and is no step. Pure.

Neighbouring steps in one direction, up or down, may be a slope that was cut into stairs. Then a slope explains as much as they do,
at a price for each of them, and the values rise within the stairs as they do from one to the next; on true stairs they do not.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from itertools import pairwise
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from karat.changepoints.detector.noise import Floats, pieces, robust_spread

_SLOW, _SLOW_OF_ONE = 1 / 3, 0.85  # of the stretch; a single step could be a slope of nearly all of it only
_KNOTS = 12  # ends of a slope that are tried
_MEANS = 240  # a long stretch is looked at in so many means
_SHORTEST = 24  # values that make a trend
_STEEP, _SURE = 0.5, 3.0  # of the slope from stair to stair, within stairs; and the standard errors of it
_SURE_OF_A_PART = 1.0
_CLEARLY = 7.0  # in variances, per step: how much more stairs explain than a slope; thirty to one
_CYCLES = 4  # that a season must be seen
_LONGEST = 60
_EARLY = 5000
_CLEAR = 7.0  # standard errors: of many periods tried the clearest, and neighbours may be alike
_SHARE = 0.25  # of the variance that a season explains
_AS_GOOD = 0.85  # a shorter period that explains so much of what the best explains is the period
_AGAIN = 0.6  # correlation of a quarter with the others
_STAYS = 0.5  # of the season: how far the level moves in one cycle at most
_CLIP = 3.0


class Trend(NamedTuple):
    """A slow move from one level to another."""

    first: int
    last: int  # Positions of its first and last value.
    before: float
    after: float
    p_value: float


def without_trends(
    values: Floats, cuts: Sequence[int], p_values: Floats, noise: float
) -> tuple[list[int], tuple[Trend, ...]]:
    """The cuts that are steps, and what the others are."""
    edges = [0, *cuts, values.shape[0]]
    rises = np.diff(pieces(cuts, values.shape[0]).means(values)) > 0
    kept: list[int] = []
    found: list[Trend] = []
    number = 0
    while number < len(cuts):
        stop, whole = number, not number or rises[number - 1] != rises[number]
        while stop + 1 < len(cuts) and rises[stop + 1] == rises[number]:
            stop += 1
        # The longest first: a slope with a step in it is two slopes and a step.
        for last in range(stop, number - 1, -1):
            sure = _SURE if last == stop and whole else _SURE_OF_A_PART
            slope = _slope(values, edges[number : last + 3], noise, sure)
            if slope is not None:
                found.append(Trend(*slope, float(p_values[number : last + 1].min())))
                number = last + 1
                break
        else:
            kept.append(cuts[number])
            number += 1
    return kept, tuple(found)


def _rises_within(values: Floats, edges: Sequence[int], noise: float, sure: float) -> bool:
    """Whether values may rise within stairs half as steeply as from the first stair to the last.

    Of the first and the last no more than the length of the shortest: beyond its ends a slope is flat.
    """
    most = int(np.diff(edges).min())
    edges = [max(edges[0], edges[1] - most), *edges[1:-1], min(edges[-1], edges[-2] + most)]
    row = values[edges[0] : edges[-1]]
    cut = pieces([edge - edges[0] for edge in edges[1:-1]], row.shape[0])
    at = np.arange(row.shape[0], dtype=np.float64)
    centres, levels = cut.means(at), cut.means(row)
    along, up = at - centres[cut.of], row - levels[cut.of]
    squares = float(along @ along)
    overall = float(levels[-1] - levels[0]) / float(centres[-1] - centres[0])
    return bool(float(along @ up) / squares / overall > _STEEP - sure * noise / np.sqrt(squares) / abs(overall))


def _slope(values: Floats, edges: Sequence[int], noise: float, sure: float) -> tuple[int, int, float, float] | None:
    """First and last position, and the levels before and after, of a slope that explains as much as the stairs do."""
    row = values[edges[0] : edges[-1]]
    n = row.shape[0]
    block = -(-n // _MEANS)
    count = n // block
    if count < _SHORTEST or not _rises_within(values, edges, noise, sure):
        return None
    means = row[: count * block].reshape(count, block).mean(axis=1)
    knots = np.unique(np.linspace(0, count - 1, _KNOTS).astype(int))
    first, last = (grid.ravel() for grid in np.meshgrid(knots, knots))
    long = last - first >= max(_SHORTEST / 2, count * (_SLOW if len(edges) > 3 else _SLOW_OF_ONE))
    first, last = first[long], last[long]
    ramps = np.clip((np.arange(count) - first[:, None]) / (last - first)[:, None], 0, 1)
    centred = ramps - ramps.mean(axis=1, keepdims=True)
    squares = (centred**2).sum(axis=1)
    rises = centred @ means / squares
    best = int(np.argmax(rises**2 * squares))
    cut = pieces([edge - edges[0] for edge in edges[1:-1]], n)
    stairs = float(cut.counts @ (cut.means(row) - row.mean()) ** 2)
    clearly = _CLEARLY * (len(edges) - 2) * noise**2
    if stairs - block * float(rises[best] ** 2 * squares[best]) > clearly:
        return None
    before = float(means.mean() - rises[best] * ramps[best].mean())
    end = min(int(last[best]) * block + block - 1, n - 1)
    return edges[0] + int(first[best]) * block, edges[0] + end, before, before + float(rises[best])


class Season(NamedTuple):
    """What comes again."""

    words: str
    offsets: Floats  # What each value has from it.


def find_season(values: Floats, times: Sequence[datetime | None] = ()) -> Season | None:
    n = values.shape[0]
    size = float(np.abs(values).max(initial=0.0))
    # What comes again came early, too: a long row without a season need not be searched to its end.
    if size == 0 or (n > _EARLY and find_season(values[:_EARLY], times[:_EARLY]) is None):
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
        cells, most = groups + counts.size * (np.arange(n) * _CYCLES // n), _CYCLES * counts.size
        table = np.bincount(cells, rest, most) / np.maximum(np.bincount(cells, minlength=most), 1)
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
        each = sorted(b - a for a, b in pairwise(known))[(n - 1) // 2]
        if each == timedelta(days=1):
            tried.append(("differs by the day of the week", 7, np.array([time.weekday() for time in known])))
        elif timedelta(0) < each <= timedelta(hours=6):
            cycle = round(timedelta(days=1) / each)
            tried.append(("differs by the hour of the day", cycle, np.array([time.hour for time in known])))
    at = np.arange(n)
    tried += [(f"comes again every {period} points", period, at % period) for period in range(3, _LONGEST + 1)]
    return [one for one in tried if one[1] * _CYCLES <= n]
