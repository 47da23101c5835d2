"""Scan: whether a row of numbers has a step, where, and how likely chance makes one as clear. Pure.

Every split into two, and stretches of every scale against the rest, are looked at. Each scale has maxima of its own under
chance (short stretches have many places to be, and feel single wild values), so each is measured against its own, and
the best of all against the best of all: the p-value accounts for the choice of scale and place. What chance does is
known in one of three ways:

- a long row says it itself: permutations of it make the test exact for exchangeable noise of any shape;
- a short one within a series, by what is left over everywhere else;
- a short one on its own is compared with heavy-tailed noise, so that only a huge step passes.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from functools import lru_cache
from itertools import pairwise
from statistics import NormalDist
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from karat.changepoints.series import DetectOptions

Floats = npt.NDArray[np.floating]

_SPARE = 1e-12
CLIP = 4.0  # Values count no further than this many standard deviations from their level.
_CLIP = 3.0
_SEED = 20231117
_ROWS = 256
_FEW_ROWS = 1500  # of simulated short rows: their tail is a power, and needs more of them
FEW = 40  # Rows shorter than this may be judged on their own against heavy-tailed noise.
_FEWEST_PERMUTED = 8
_FAR = 30.0  # standard deviations that count within a series whose noise is known
_SMALL = 40  # longer pieces are judged by their own noise, unless there is as much of it outside of them
_NOISIER = 1.5  # a piece this much noisier than the rest has noise of its own
_ENOUGH_NOISE = 12
_AROUND = 1000  # values on either side of a piece that its noise is known by
_PERMUTED_TELL = 12  # a row of fewer values has too few permutations to tell anything
_OWN_SHARE = 5.0


class ScanResult(NamedTuple):
    """The clearest split of a row, or the clearest stretch in it."""

    p_value: float
    cuts: tuple[int, ...]  # Where the row is to be cut: before these positions.


NOTHING = ScanResult(1.0, ())


class _Plan(NamedTuple):
    """What depends on a row's length alone: scales, and how far chance moves each sum."""

    sizes: tuple[int, ...]
    split_scale: Floats  # per split k = 1…n−1: the standard deviation of its sum
    stretch_scale: tuple[float, ...]  # per size


def sum_variance(count: npt.ArrayLike, rho: float) -> Floats:
    """The variance of a sum of `count` neighbours of unit variance with autocorrelation `rho`, as AR(1) has it."""
    k = np.asarray(count, dtype=np.float64)
    if rho == 0:
        return k
    return np.asarray(k * (1 + rho) / (1 - rho) - 2 * rho * (1 - rho**k) / (1 - rho) ** 2)


@lru_cache(maxsize=512)
def _plan(n: int, rho: float, fewest: int) -> _Plan:
    sizes, size = [], fewest
    growth = 1.3 if n < 1000 else 1.5
    while size <= n // 2:
        sizes.append(size)
        size = max(size + 1, round(size * growth))
    k = np.arange(1, n)
    left, right, whole = sum_variance(k, rho), sum_variance(n - k, rho), sum_variance(n, rho)
    a, b = (n - k) / n, k / n
    variance = a * a * left + b * b * right - a * b * (whole - left - right)
    stretch = [float(np.sqrt(sum_variance(size, rho) * (n - size) / n)) for size in sizes]
    return _Plan(tuple(sizes), np.sqrt(variance).astype(np.float32), tuple(stretch))


def _sums(rows: Floats) -> Floats:
    sums = np.zeros((rows.shape[0], rows.shape[1] + 1), dtype=np.float32)
    np.cumsum(rows, axis=1, out=sums[:, 1:])
    return sums


def _maxima(sums: Floats, plan: _Plan) -> Floats:
    """The largest deviation of every row in every scale: splits first, then stretches."""
    n = sums.shape[1] - 1
    splits = np.abs(sums[:, 1:n]) / plan.split_scale
    columns = []
    for number, size in enumerate(plan.sizes):
        stop = plan.sizes[number + 1] if number + 1 < len(plan.sizes) else n // 2 + 1
        head = splits[:, size - 1 : stop - 1].max(axis=1)
        tail = splits[:, n - stop : n - size].max(axis=1)
        columns.append(np.maximum(head, tail))
    for size, scale in zip(plan.sizes, plan.stretch_scale, strict=True):
        columns.append(np.abs(sums[:, size:] - sums[:, :-size]).max(axis=1) / scale)
    return np.stack(columns, axis=1)


def _place(sums: Floats, plan: _Plan, column: int, fewest: int) -> tuple[int, ...]:
    """Where the maximum of one scale is."""
    n = sums.shape[0] - 1
    if column < len(plan.sizes):
        stop = plan.sizes[column + 1] if column + 1 < len(plan.sizes) else n // 2 + 1
        near = np.minimum(np.arange(1, n), n - np.arange(1, n))
        allowed = (near >= plan.sizes[column]) & (near < stop)
        return (int(np.argmax(np.where(allowed, np.abs(sums[1:n]) / plan.split_scale, -1.0))) + 1,)
    size = plan.sizes[column - len(plan.sizes)]
    start = int(np.argmax(np.abs(sums[size:] - sums[:-size])))
    return tuple(cut for cut in (start, start + size) if fewest <= cut <= n - fewest)


def _beside_the_step(seen: Floats, plain: _Plan, real: _Plan, n: int) -> Floats:
    """Heights as they are when the spread is taken beside the step that they are of.

    A row's own spread has its step in it, so no height is above √n. Permutations have the same bound, and so are fair;
    but a height that was made smaller for autocorrelation is not, unless it is made smaller beside the step.
    """
    sizes = np.array(plain.sizes) - 1
    splits = real.split_scale[sizes] / plain.split_scale[sizes]
    stretches = np.array(real.stretch_scale) / np.array(plain.stretch_scale)
    wider = np.concatenate([splits, stretches])
    raw = np.minimum((seen * wider) ** 2 / n, 1 - 1e-6)
    beside = raw / (1 - raw) / wider**2
    return np.asarray(np.sqrt(n * beside / (1 + beside)))


def scan(
    row: Floats, chance: Floats, *, spread: float, rho: float, fewest: int, own_spread: bool = False
) -> ScanResult:
    """The clearest split or stretch of `row`, against rows of what chance makes of the same noise.

    Both have mean zero; `spread` is the standard deviation of a single value, of both; only `row` has the
    autocorrelation `rho`. `own_spread`: it was taken from the row itself.
    """
    n = row.shape[0]
    if n < 2 * fewest or spread <= 0:
        return NOTHING
    plain, real = _plan(n, 0.0, fewest), _plan(n, rho, fewest)
    null = _maxima(_sums(chance), plain) / spread
    sums = _sums(row[None, :])
    seen = _maxima(sums, real)[0] / spread
    if own_spread and rho:
        seen = _beside_the_step(seen, plain, real, n)
    middle, width = null.mean(axis=0), null.std(axis=0) + _SPARE
    heights = (seen - middle) / width
    column = int(np.argmax(heights))
    p_value = tail_probability(float(heights[column]), ((null - middle) / width).max(axis=1))
    return ScanResult(p_value, _place(sums[0], real, column, fewest))


def clearest(row: Floats, *, spread: float, fewest: int) -> tuple[float, tuple[int, ...]]:
    """The clearest split or stretch in standard deviations, where nobody asks how likely."""
    n = row.shape[0]
    if n < 2 * fewest or spread <= 0:
        return 0.0, ()
    plan = _plan(n, 0.0, fewest)
    sums = _sums(row[None, :])
    seen = _maxima(sums, plan)[0] / spread
    # A stretch has two ends to choose: it must be that much clearer than a split.
    seen[len(plan.sizes) :] -= 0.3
    column = int(np.argmax(seen))
    return float(seen[column]), _place(sums[0], plan, column, fewest)


def tail_probability(height: float, chance: Floats) -> float:
    """How often chance is as high: counted, and beyond the highest tenth continued as an exponential tail.

    The tail of such maxima falls faster than that, so a small p-value is rather too large.
    """
    count = chance.shape[0]
    top = max(10, count // 10)
    highest = np.sort(chance)[-top - 1 :]
    edge = float(highest[0])
    if height <= edge:
        return float((1 + np.count_nonzero(chance >= height)) / (count + 1))
    excess = float((highest[1:] - edge).mean()) + _SPARE
    return float(max(top / count * np.exp(-(height - edge) / excess), 1e-300))


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


class StepLocation(NamedTuple):
    """Before which position a step is, and before which it may be."""

    at: int
    low: int
    high: int


def locate(row: Floats, fewest: int, *, rho: float = 0.0, floor: float = 0.0, sure: float = 0.95) -> StepLocation:
    """The best place for the one step of a row: the split that leaves least over, with wild values clipped.

    Every other split is as likely as what it leaves over says, and the range holds as many as are needed to be sure.
    """
    n = row.shape[0]
    fewest = max(1, min(fewest, n // 2))
    explained, _ = explained_by_split(clipped(row), fewest)
    at = int(np.argmax(explained)) + fewest
    # Now that there are two levels, wild values can be told from them.
    before, after = float(np.median(row[:at])), float(np.median(row[at:]))
    spread = 1.4826 * float(np.median(np.abs(np.concatenate([row[:at] - before, row[at:] - after]))))
    wild = _CLIP * spread
    values = np.clip(row, min(before, after) - wild, max(before, after) + wild) if spread > 0 else row
    explained, left = explained_by_split(values, fewest)
    at = int(np.argmax(explained)) + fewest
    variance = max(float(left.min()) / max(n - 2, 1), floor**2) * (1 + rho) / (1 - rho)
    if variance <= 0:
        return StepLocation(at, at, at)
    weights = np.exp(np.maximum((explained - explained.max()) / (2 * variance), -700))
    share = np.cumsum(weights) / weights.sum()
    low = int(np.searchsorted(share, (1 - sure) / 2)) + fewest
    high = int(np.searchsorted(share, 1 - (1 - sure) / 2)) + fewest
    return StepLocation(at, min(low, at), max(min(high, n - fewest), at))


def fit(values: Floats, cuts: Sequence[int], start: int, stop: int, fewest: int) -> list[int]:
    """Cuts of one piece, each moved to where it fits best: the sizes of stretches that are tried have gaps."""
    moved = list(cuts)
    for _ in range(2):
        for number in range(len(moved)):
            left = moved[number - 1] if number else start
            right = moved[number + 1] if number + 1 < len(moved) else stop
            moved[number] = left + locate(values[left:right], fewest).at
    return moved


def explained_by_split(row: npt.NDArray[Any], fewest: int) -> tuple[Floats, Floats]:
    """What each split explains of the sum of squares, and what it leaves."""
    n = row.shape[0]
    centred = row - row.mean()
    k = np.arange(fewest, n - fewest + 1)
    sums = np.cumsum(centred)[fewest - 1 : n - fewest]
    explained = sums**2 * n / (k * (n - k))
    return explained, np.maximum(float(centred @ centred) - explained, 0)


def left_over(rows: Floats, fewest: int, most: int) -> tuple[Floats, npt.NDArray[np.int64]]:
    """The sum of squares about the levels, per row, for 0 to `most` cuts; and where the last cut is, for every end.

    The second, of the first row only, is what `cuts` goes back along.
    """
    count, n = rows.shape
    cost = _costs(rows)
    best = np.full((most + 1, n + 1, count), np.inf)
    last = np.zeros((most + 1, n + 1), dtype=np.int64)
    best[0, fewest:] = cost[0, fewest:]
    for number in range(1, most + 1):
        for stop in range((number + 1) * fewest, n + 1):
            ways = best[number - 1, : stop - fewest + 1] + cost[: stop - fewest + 1, stop]
            best[number, stop] = ways.min(axis=0)
            last[number, stop] = int(np.argmin(ways[:, 0]))
    return best[:, n].T, last


def cuts(last: npt.NDArray[np.int64], number: int) -> tuple[int, ...]:
    """The best `number` cuts of the first row."""
    places: list[int] = []
    stop = last.shape[1] - 1
    for left in range(number, 0, -1):
        stop = int(last[left, stop])
        places.append(stop)
    return tuple(reversed(places))


def without_spikes(rows: Floats) -> Floats:
    """Rows in which a single value that is far from all that stand by it is brought near: it is no level."""
    n = rows.shape[1]
    near = np.array([[j for j in range(max(0, min(i - 2, n - 5)), n) if j != i][:4] for i in range(n)])
    low, high = rows[:, near].min(axis=2), rows[:, near].max(axis=2)
    return np.clip(rows, 2 * low - high, 2 * high - low)


def _costs(rows: Floats) -> Floats:
    """The sum of squares about the mean of every stretch: [start, stop, row]."""
    count, n = rows.shape
    sums = np.zeros((n + 1, count))
    squares = np.zeros((n + 1, count))
    np.cumsum(rows.T, axis=0, out=sums[1:])
    np.cumsum(rows.T**2, axis=0, out=squares[1:])
    size = np.maximum(np.arange(n + 1)[None, :] - np.arange(n + 1)[:, None], 1)[:, :, None]
    total = sums[None, :] - sums[:, None]
    return np.asarray(np.maximum(squares[None, :] - squares[:, None] - total**2 / size, 0.0))


def by_permutation(row: Floats, *, rho: float, fewest: int, alpha: float) -> ScanResult:
    """How clear the clearest step of a row is among the row's own permutations; nobody cares above `alpha`."""
    n = row.shape[0]
    values = clipped(row).astype(np.float32)
    spread = float(values.std())
    if spread <= 0 or n < _FEWEST_PERMUTED:
        return NOTHING
    # The mean that was taken off was the row's own: with autocorrelation that hides more of the spread.
    hidden = float(sum_variance(n, rho)) / n**2
    real = values * np.float32(np.sqrt(max(1 - hidden, 0.05))) if rho else values
    # The best of many is never rarer than one of them is by itself.
    least = spread * NormalDist().inv_cdf(1 - alpha / 2)
    if n < 2 * fewest or _maxima(_sums(real[None, :]), _plan(n, 0.0, fewest)).max() < least:
        return NOTHING
    generator = np.random.default_rng(_SEED)
    chance = generator.permuted(np.tile(values, (_rows(n), 1)), axis=1)
    return scan(real, chance, spread=spread, rho=rho, fewest=fewest, own_spread=True)


def _rows(n: int) -> int:
    return max(64, min(_ROWS, 2**18 // n))


def by_noise(row: Floats, noise: Floats, *, unseen: float, rho: float, fewest: int) -> ScanResult:
    """How clear the clearest step of a row is among rows drawn from `noise`; all in its robust spread.

    `unseen` is noise that values do not show, for they are rounded.
    """
    n = row.shape[0]
    # Wild values count no further in the one than in the other.
    centred = np.clip(row - np.median(row), -_FAR, _FAR)
    centred -= centred.mean()
    bounded = np.clip(noise, -_FAR, _FAR)
    generator = np.random.default_rng(_SEED)
    chance = generator.choice(bounded, size=(_rows(n), n)).astype(np.float32)
    chance += generator.standard_normal(chance.shape, dtype=np.float32) * np.float32(unseen)
    chance -= chance.mean(axis=1, keepdims=True)
    spread = max(float(bounded.std()), 1.0)
    return scan(centred.astype(np.float32), chance, spread=spread, rho=rho, fewest=fewest)


def on_its_own(row: Floats, *, floor: float, fewest: int) -> ScanResult:
    """How clear the best few steps of a short row are among rows of heavy-tailed noise (t with 3 degrees)."""
    n = row.shape[0]
    if n < 2 * fewest or n > FEW:
        return NOTHING
    left, last = left_over(without_spikes((row - row.mean())[None, :]), fewest, _most_cuts(n, fewest))
    if left[0, 0] <= n * floor**2:
        return NOTHING
    chance, middle, width = _own_chance(n, fewest)
    heights = (_ratios(left, n * floor**2)[0] - middle) / width
    number = int(np.argmax(heights)) + 1
    return ScanResult(tail_probability(float(heights.max()), chance), cuts(last, number))


def _most_cuts(n: int, fewest: int) -> int:
    return max(1, min(4, n // (2 * fewest)))


@lru_cache(maxsize=64)
def _own_chance(n: int, fewest: int) -> tuple[Floats, Floats, Floats]:
    rows = np.random.default_rng(_SEED).standard_t(3, size=(_FEW_ROWS, n))
    ratios = _ratios(left_over(without_spikes(rows), fewest, _most_cuts(n, fewest))[0], 0.0)
    middle, width = ratios.mean(axis=0), ratios.std(axis=0)
    return ((ratios - middle) / width).max(axis=1), middle, width


def _ratios(left: Floats, floor: float) -> Floats:
    """Logarithm of what each number of cuts explains over what it leaves; its tail is near to an exponential one."""
    explained = np.maximum(left[:, :1] - left[:, 1:], 0)
    return np.asarray(np.log(explained + 1e-300) - np.log(left[:, 1:] + floor + 1e-300))


class NoisyRow(NamedTuple):
    """A row of values, and what is known of its noise."""

    values: Floats
    rho: float
    floor: float
    options: DetectOptions


def scan_whole(row: NoisyRow) -> ScanResult:
    """Whether a whole row has a step."""
    fewest = row.options.min_points
    permuted = by_permutation(row.values, rho=row.rho, fewest=fewest, alpha=row.options.false_alarms)
    if row.values.shape[0] > FEW:
        return permuted
    own = on_its_own(row.values, floor=row.floor, fewest=fewest)
    # Two looks share the rate of false alarms: where there are permutations enough, they have most of it.
    looks = [ScanResult(own.p_value * _OWN_SHARE, own.cuts), ScanResult(permuted.p_value * 1.25, permuted.cuts)]
    best = min(looks) if row.values.shape[0] >= _PERMUTED_TELL else own
    return ScanResult(min(1.0, best.p_value), best.cuts)


def scan_piece(row: NoisyRow, cuts: Sequence[int], start: int, stop: int) -> ScanResult:
    """Whether a piece has a step."""
    fewest = row.options.min_points
    piece = row.values[start:stop]
    size = stop - start
    if size < 2 * fewest:
        return NOTHING
    from_here, to_here = max(0, start - _AROUND), min(row.values.shape[0], stop + _AROUND)
    known = [*cuts[bisect_right(cuts, from_here) : bisect_left(cuts, to_here)]]
    outer = [cut for cut in known if not start < cut < stop]
    split = locate(row.values[start:stop], row.options.min_points).at + start
    parts = []
    for left, right in pairwise(sorted({from_here, *outer, start, split, stop, to_here})):
        part = row.values[left:right]
        if part.shape[0] >= 3:
            parts.append((part - np.median(part)) * np.sqrt(part.shape[0] / (part.shape[0] - 1)))
    noise = np.concatenate(parts) if parts else np.zeros(0)
    if size > _SMALL and noise.shape[0] < 2 * size:
        share = row.options.false_alarms * size / row.values.shape[0]
        return by_permutation(piece, rho=row.rho, fewest=fewest, alpha=share)
    if noise.shape[0] < _ENOUGH_NOISE:
        return on_its_own(piece, floor=row.floor, fewest=fewest)
    spread = max(robust_spread(noise), row.floor)
    own = robust_spread(np.diff(piece)) / np.sqrt(2 * (1 - row.rho))
    noisier = own / spread if own > _NOISIER * spread else 1.0
    return by_noise(piece / (spread * noisier), noise / spread, unseen=row.floor / spread, rho=row.rho, fewest=fewest)
