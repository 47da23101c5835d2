"""Segments: where a row of values changes its level. Pure, and linear in the length of the row.

Wherever the neighbours on one side differ from those on the other, in windows of any size, a cut is a candidate. The best
of all ways to cut there, at a price per cut that is generous, is tried: each cut by how likely chance makes the shift of the
shorter level beside it, for all the places where it could be. The weakest are taken back, until of those that are left the share
that is by chance is no more than the rate of false alarms; so many short levels bear each other out. Then what they gain must be more
than autocorrelation would. Where the noise changes, values count by the noise that is around them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import lru_cache
from statistics import NormalDist
from typing import NamedTuple

import msgspec
import numpy as np
import numpy.typing as npt

from karat.changepoints.detector.noise import (
    CLIP,
    Floats,
    NoiseShape,
    alike,
    autocorrelation,
    explained_by_split,
    gain,
    pieces,
    robust_spread,
    sum_variance,
    two_modes,
)
from karat.changepoints.detector.trends import Trend, without_trends
from karat.changepoints.series import RAREST, DetectOptions

_FEW = 12  # Fewer values are judged against heavy-tailed noise,
_SEED, _ROWS = 20231117, 1500  # of which so many rows are simulated: their tail is a power, and needs many
_CANDIDATE = 2.0  # standard errors
_WINDOWS = 1.5  # each so much wider than the one before
_PRICE = 4.0  # of a cut, beside twice the logarithm of the length
_PLACES = 2.0  # where a level could be, in its lengths
_AGREED, _ALIKE = 3, 2.0  # values whose likeness counts, and what is likeness
_LEVEL = 2.0  # standard deviations from the middle that count for a level
_AROUND = 20  # values that tell whether it is noisier here
_NOISIER = 2.0  # standard errors
_GAIN = 2.0  # logarithms of the length that a cut must gain, and more where neighbours are alike
_GAIN_ALIKE = 5.0
_STRETCH = 8  # values that tell of their noise
_RATIO = 1.5  # between one noise and another
_GENEROUS = 0.05
_CALMEST = 1e-5  # part of the largest noise
_NEAR = 6  # values beside a change of noise that may be of either


class LevelCut(NamedTuple):
    """One place where the level changes: before position `at`."""

    at: int
    low: int
    high: int  # The positions it may be at.
    p_value: float


class Segmented(NamedTuple):
    """A row cut into levels."""

    cuts: tuple[LevelCut, ...]
    rho: float
    noise: float  # Robust standard deviation of the values about their levels.
    trends: tuple[Trend, ...] = ()
    noise_cuts: tuple[LevelCut, ...] = ()  # Where the noise changes.


class _Row(NamedTuple):
    """Values, and what is known of their noise."""

    values: Floats
    calm: Floats  # Single wild values brought near.
    scales: Floats  # How noisy it is around each value.
    floor: float
    options: DetectOptions


class _Judged(NamedTuple):
    p_values: Floats
    rho: float
    noise: float
    told_by: np.ndarray = np.zeros(0)  # The piece beside each cut that is less certain.


def segment(values: Floats, options: DetectOptions, *, floor: float = 1e-12) -> Segmented:
    """Cut a row of finite values into levels; `floor` is noise that the values do not show."""
    n = values.shape[0]
    if n < _FEW:
        chance, few = _cuts_of_few(values, floor=floor, fewest=options.min_points)
        small = _small(pieces(few, n).medians(values), options).any()
        found = few if chance <= options.false_alarms and not small else ()
        judged = _Judged(np.full(len(found), chance), 0.0, floor)
        return Segmented(tuple(_placed(values, found, judged, options)), 0.0, _noise(values, found, floor))
    scales, noise_cuts = noise_scales(values, options)
    row = _row(values, scales, floor, options)
    places, judged = _cuts(row)
    trends: tuple[Trend, ...] = ()
    if places:
        noise = judged.noise * float(np.median(row.scales)) * np.sqrt((1 + judged.rho) / (1 - judged.rho))
        kept, trends = without_trends(row.calm, places, judged.p_values, noise)
        judged = judged._replace(p_values=judged.p_values[np.isin(places, kept)])
        places = kept
    cuts = tuple(_placed(row.calm, places, judged, options))
    return Segmented(cuts, judged.rho, _noise(values, places, floor), trends, noise_cuts)


def _noise(values: Floats, cuts: Sequence[int], floor: float) -> float:
    parts = [part - np.median(part) for part in np.split(values, cuts)]
    return max(robust_spread(np.concatenate(parts)), floor)


def noise_scales(values: Floats, options: DetectOptions) -> tuple[Floats, tuple[LevelCut, ...]]:
    """How noisy it is around each value, 1 being usual; and where that surely changes: by differences, which no level enters."""
    n = values.shape[0]
    sizes = np.abs(np.diff(values))
    usual = float(np.median(sizes))
    if n < 5 * _STRETCH or usual <= 0:
        return np.ones(n), ()
    rate = max(_GENEROUS, options.false_alarms)
    generous = msgspec.structs.replace(options, false_alarms=rate, min_points=_STRETCH, smallest=0)
    logs = np.log(sizes + usual / 5)
    places, judged = _cuts(_row(logs, np.ones(n - 1), 1e-12, generous))
    chances = dict(zip(places, judged.p_values, strict=True))
    while places:
        middle = pieces(places, n - 1).medians(sizes)
        ratios = np.exp(np.abs(np.diff(np.log(np.maximum(middle, usual * 1e-9)))))
        if ratios.min() >= _RATIO:
            around = np.repeat(middle / usual, np.diff([0, *(at + 1 for at in places), n]))
            scales = np.maximum(_largest_near(around, _NEAR), 1e-9)
            sure = [at for at in places if chances.get(at, 1.0) <= options.false_alarms]
            return scales, tuple(LevelCut(at + 1, at + 1, at + 1, max(float(chances[at]), RAREST)) for at in sure)
        del places[int(np.argmin(ratios))]
    return np.ones(n), ()


def _row(values: Floats, scales: Floats, floor: float, options: DetectOptions) -> _Row:
    """A row whose single wild values are brought near to the middle of the five about them."""
    steps = np.diff(values) / np.maximum(scales[1:], scales[:-1])
    noise = max(robust_spread(steps) / np.sqrt(2), floor) * scales
    five = np.lib.stride_tricks.sliding_window_view(values, 5)
    middle = np.median(five, axis=1)
    middle = np.concatenate([middle[[0, 0]], middle, middle[[-1, -1]]])
    return _Row(values, np.clip(values, middle - CLIP * noise, middle + CLIP * noise), noise, floor, options)


def _cuts(row: _Row) -> tuple[list[int], _Judged]:
    """The cuts that stand, the weakest taken back first."""
    n, fewest = row.values.shape[0], row.options.min_points
    # About zero, and in units of their noise, so that sums lose no digits.
    largest = float(row.scales.max())
    weights = (largest / np.maximum(row.scales, largest * _CALMEST)) ** 2
    centred = (row.calm - np.median(row.calm)) / largest
    cuts = _best_partition(centred, weights, _candidates(centred, weights, fewest), fewest)
    modes = bool(cuts) and two_modes(row.values)
    while cuts:
        judged = _judge(row, cuts, modes=modes)
        p_values = judged.p_values
        order = np.argsort(p_values)
        # The two cuts beside a short level are told by the same few values: by chance they come together.
        _, told_first = np.unique(judged.told_by[order], return_index=True)
        count = np.cumsum(np.isin(np.arange(len(cuts)), told_first))
        shares = p_values[order] <= row.options.false_alarms * count
        bad = p_values > (p_values[order][np.flatnonzero(shares)[-1]] if shares.any() else -1.0)
        if not bad.any():
            needed = _GAIN + _GAIN_ALIKE * max(0.0, alike(row.values, row.scales, cuts) - n**-0.5)
            if gain(row.values, row.scales, cuts) >= needed:
                return cuts, judged
            bad = p_values >= p_values.max()
        # Of neighbours, which see each other's pieces, only the weaker is taken back.
        beside = np.concatenate([[-1.0], p_values, [-1.0]])
        bad &= (p_values >= beside[:-2]) & (p_values > beside[2:]) | (p_values >= p_values.max())
        last = -2
        kept = []
        for number, cut in enumerate(cuts):
            if bad[number] and number - last > 1:
                last = number
            else:
                kept.append(cut)
        # Each where it fits best between its neighbours.
        for number in range(len(kept)):
            start = kept[number - 1] if number else 0
            stop = kept[number + 1] if number + 1 < len(kept) else n
            kept[number] = start + fewest + int(np.argmax(explained_by_split(row.calm[start:stop], fewest)[0]))
        cuts = kept
    rho = autocorrelation(row.values, row.scales, ())
    return [], _Judged(np.zeros(0), rho, robust_spread(row.values - np.median(row.values)))


def _judge(row: _Row, cuts: Sequence[int], *, modes: bool) -> _Judged:
    """How likely chance makes each shift somewhere in the row: of the less certain level beside it against the other."""
    n, cut = row.values.shape[0], pieces(cuts, row.values.shape[0])
    middle = cut.medians(row.values)
    left = (row.values - middle[cut.of]) / row.scales
    floor = row.floor / float(row.scales.min())
    spread = max(robust_spread(left), floor)
    levels = middle + cut.means(np.clip(left, -_LEVEL * spread, _LEVEL * spread) * row.scales)
    left = (row.values - levels[cut.of]) / row.scales
    left *= np.sqrt(cut.counts / np.maximum(cut.counts - 1, 1))[cut.of]
    spread = max(robust_spread(left), floor)
    shape = NoiseShape(left / spread)
    units = row.scales * spread
    variances = cut.means(units**2) * _noisier(np.clip(left / spread, -CLIP, CLIP) ** 2, cut.edges)
    to_next = cut.means(np.clip((row.values - np.append(levels[1:], 0.0)[cut.of]) / units, -CLIP, CLIP))[:-1]
    to_last = cut.means(np.clip((row.values - np.append(0.0, levels[:-1])[cut.of]) / units, -CLIP, CLIP))[1:]
    errors = variances / cut.counts
    first = errors[:-1] >= errors[1:]
    small, other = np.where(first, errors[:-1], errors[1:]), np.where(first, errors[1:], errors[:-1])
    count = np.where(first, cut.counts[:-1], cut.counts[1:])
    usual = np.where(first, cut.means(units**2)[:-1], cut.means(units**2)[1:]) / count
    strayed = (np.where(first, to_next, to_last) - shape.mean) * np.sqrt(usual / (small + other))
    rho = autocorrelation(row.values, row.scales, () if modes else cuts)
    height = 2 * count**2 / sum_variance(count, rho) * shape.rate(strayed)
    degrees = max(n - len(cuts) - 1, 1)
    normal = NormalDist()
    chance = np.array([normal.cdf(-x) for x in np.sqrt(degrees * np.log1p(height / degrees))])
    places = _PLACES * n / np.minimum(cut.counts[:-1], cut.counts[1:])
    # Wild values that stand by each other are one thing, and that they are alike is another.
    range_of = np.maximum.reduceat(row.values, cut.edges[:-1]) - np.minimum.reduceat(row.values, cut.edges[:-1])
    unit = np.sqrt(cut.means(units**2))
    apart = np.abs(np.diff(levels)) / np.where(first, unit[:-1], unit[1:])
    agreed = _ALIKE * (1 + np.where(first, (range_of / unit)[:-1], (range_of / unit)[1:])) / np.maximum(apart, 1e-9)
    chance *= np.minimum(agreed, 1.0) ** np.minimum(count - 1, _AGREED)
    chance = np.minimum(2 * places * chance, 1.0)
    chance[_small(middle, row.options)] = 2.0
    return _Judged(chance, rho, spread, np.arange(len(cuts)) + ~first)


def _noisier(squares: Floats, edges: np.ndarray) -> Floats:
    """How much larger the variance of each piece is, or of the values around a short one, where it clearly is."""
    n = squares.shape[0]
    wide = np.maximum(_AROUND - np.diff(edges), 0) // 2
    low = np.maximum(np.minimum(edges[:-1] - wide, n - _AROUND), 0)
    high = np.minimum(np.maximum(edges[1:] + wide, _AROUND), n)
    sums = np.append(0.0, np.cumsum(squares))
    more = (sums[high] - sums[low]) / (high - low) / max(float(squares.mean()), 1e-300)
    return np.where(more > 1 + _NOISIER * np.sqrt(2 / (high - low)), more, 1.0)


def _small(levels: Floats, options: DetectOptions) -> np.ndarray:
    """Which steps are smaller than anyone wants to know."""
    return np.asarray(np.abs(np.diff(levels)) < options.smallest * np.abs(levels[:-1]))


def _candidates(values: Floats, weights: Floats, fewest: int) -> list[int]:
    """Where the values on either side differ most, in windows of every size."""
    n = values.shape[0]
    sums, total = np.append(0.0, np.cumsum(weights * values)), np.append(0.0, np.cumsum(weights))
    at = np.arange(fewest, n - fewest + 1)
    found = np.zeros(n + 1, dtype=bool)
    size = fewest
    while size <= n // 2:
        low, high = np.maximum(at - size, 0), np.minimum(at + size, n)
        before, after = total[at] - total[low], total[high] - total[at]
        apart = np.abs((sums[high] - sums[at]) / after - (sums[at] - sums[low]) / before)
        clear = apart * np.sqrt(before * after / (before + after))
        found[at[(clear >= _largest_near(clear, max(1, size // 2))) & (clear > _CANDIDATE)]] = True
        size = max(size + 1, round(size * _WINDOWS))
    return [int(place) for place in np.flatnonzero(found)]


def _largest_near(values: Floats, reach: int) -> Floats:
    """The largest of the values up to `reach` away from each: by running maxima within blocks, from either end."""
    n, width = values.shape[0], 2 * reach + 1
    blocks = np.full(-(-(n + 2 * reach) // width) * width, -np.inf)
    blocks[reach : reach + n] = values
    table = blocks.reshape(-1, width)
    forward = np.maximum.accumulate(table, axis=1).ravel()
    backward = np.maximum.accumulate(table[:, ::-1], axis=1)[:, ::-1].ravel()
    return np.asarray(np.maximum(backward[:n], forward[width - 1 : width - 1 + n]))


def _best_partition(values: Floats, weights: Floats, places: Sequence[int], fewest: int) -> list[int]:
    """Those of the places that leave least over, at a price each; ways that can never be best are left behind (PELT)."""
    price = 2 * np.log(values.shape[0]) + _PRICE
    at = np.array([0, *places, values.shape[0]])
    total, sums, squares = (np.append(0.0, np.cumsum(x))[at] for x in (weights, weights * values, weights * values**2))
    best, last = np.full(at.shape[0], np.inf), np.zeros(at.shape[0], dtype=np.int64)
    best[0] = -price
    ways = np.array([0])
    for stop in range(1, at.shape[0]):
        early = at[ways] <= at[stop] - fewest
        open_ways = ways[early]
        if open_ways.size:
            moved = sums[stop] - sums[open_ways]
            cost = best[open_ways] + squares[stop] - squares[open_ways] - moved**2 / (total[stop] - total[open_ways])
            least = int(np.argmin(cost))
            best[stop], last[stop] = cost[least] + price, open_ways[least]
            open_ways = open_ways[cost <= best[stop]]
        ways = np.concatenate([open_ways, ways[~early], [stop]])
    found: list[int] = []
    stop = int(last[-1])
    while stop > 0:
        found.append(int(at[stop]))
        stop = int(last[stop])
    return found[::-1]


def _placed(values: Floats, cuts: Sequence[int], judged: _Judged, options: DetectOptions) -> Iterator[LevelCut]:
    """Each cut with the positions that it may be at: every one as likely as what it leaves over says."""
    for number, (start, cut, stop) in enumerate(zip([0, *cuts], cuts, [*cuts[1:], values.shape[0]], strict=False)):
        fewest = min(options.min_points, (stop - start) // 2)
        explained, left = explained_by_split(values[start:stop], fewest)
        at = cut - start
        variance = max(float(left[at - fewest]) / max(stop - start - 2, 1), judged.noise**2 * 1e-6)
        variance *= (1 + judged.rho) / (1 - judged.rho)
        low = high = at
        if variance > 0:
            weights = np.exp(np.maximum((explained - explained.max()) / (2 * variance), -700))
            share = np.cumsum(weights) / weights.sum()
            tail = (1 - options.location) / 2
            low = min(at, int(np.searchsorted(share, tail)) + fewest)
            high = max(at, min(int(np.searchsorted(share, 1 - tail)) + fewest, stop - start - fewest))
        yield LevelCut(cut, start + low, start + high, max(float(judged.p_values[number]), RAREST))


def _cuts_of_few(row: Floats, *, floor: float, fewest: int) -> tuple[float, tuple[int, ...]]:
    """The best few cuts, and how clear they are among those of heavy-tailed noise (t with 3 degrees).

    So few values say nothing of the shape of their noise: only a huge step passes.
    """
    n = row.shape[0]
    most = _most_cuts(n, fewest)
    left, last = _left_of_few(_without_spikes((row - row.mean())[None, :]), fewest, most)
    if n < 2 * fewest or left[0, 0] <= n * floor**2:
        return 1.0, ()
    chance, middle, width = _by_chance(n, fewest)
    heights = (_ratios(left, n * floor**2)[0] - middle) / width
    number = int(np.argmax(heights)) + 1
    places, stop = [], n
    for way in range(number, 0, -1):
        stop = int(last[way, stop])
        places.append(stop)
    return _tail(float(heights.max()), chance), tuple(reversed(places))


def _most_cuts(n: int, fewest: int) -> int:
    return max(1, min(4, n // (2 * fewest)))


@lru_cache(maxsize=64)
def _by_chance(n: int, fewest: int) -> tuple[Floats, Floats, Floats]:
    rows = np.random.default_rng(_SEED).standard_t(3, size=(_ROWS, n))
    ratios = _ratios(_left_of_few(_without_spikes(rows), fewest, _most_cuts(n, fewest))[0], 0.0)
    middle, width = ratios.mean(axis=0), ratios.std(axis=0)
    return ((ratios - middle) / width).max(axis=1), middle, width


def _tail(height: float, chance: Floats) -> float:
    """How often chance is as high: counted, and beyond the highest tenth continued as an exponential tail."""
    top = chance.shape[0] // 10
    highest = np.sort(chance)[-top - 1 :]
    edge = float(highest[0])
    if height <= edge:
        return float((1 + np.count_nonzero(chance >= height)) / (chance.shape[0] + 1))
    excess = float((highest[1:] - edge).mean())
    return float(max(0.1 * np.exp(-(height - edge) / excess), 1e-300))


def _ratios(left: Floats, floor: float) -> Floats:
    """Logarithm of what each number of cuts explains over what it leaves; its tail is near to an exponential one."""
    explained = np.maximum(left[:, :1] - left[:, 1:], 0)
    return np.asarray(np.log(explained + 1e-300) - np.log(left[:, 1:] + floor + 1e-300))


def _without_spikes(rows: Floats) -> Floats:
    """Rows in which a single value that is far from all that stand by it is brought near: it is no level."""
    n = rows.shape[1]
    near = np.array([[j for j in range(max(0, min(i - 2, n - 5)), n) if j != i][:4] for i in range(n)])
    low, high = rows[:, near].min(axis=2), rows[:, near].max(axis=2)
    return np.clip(rows, 2 * low - high, 2 * high - low)


def _left_of_few(rows: Floats, fewest: int, most: int) -> tuple[Floats, npt.NDArray[np.int64]]:
    """The sum of squares about the levels, per row, for 0 to `most` cuts; and, of the first row, the last cut for every end."""
    count, n = rows.shape
    sums, squares = np.zeros((n + 1, count)), np.zeros((n + 1, count))
    np.cumsum(rows.T, axis=0, out=sums[1:])
    np.cumsum(rows.T**2, axis=0, out=squares[1:])
    size = np.maximum(np.arange(n + 1)[None, :] - np.arange(n + 1)[:, None], 1)[:, :, None]
    cost = np.maximum(squares[None, :] - squares[:, None] - (sums[None, :] - sums[:, None]) ** 2 / size, 0.0)
    best = np.full((most + 1, n + 1, count), np.inf)
    last = np.zeros((most + 1, n + 1), dtype=np.int64)
    best[0, fewest:] = cost[0, fewest:]
    for number in range(1, most + 1):
        for stop in range((number + 1) * fewest, n + 1):
            ways = best[number - 1, : stop - fewest + 1] + cost[: stop - fewest + 1, stop]
            best[number, stop] = ways.min(axis=0)
            last[number, stop] = int(np.argmin(ways[:, 0]))
    return best[:, n].T, last
