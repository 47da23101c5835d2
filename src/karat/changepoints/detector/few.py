"""Few: whether a row of five to a dozen values has a step. Pure.

So few say nothing of the shape of their noise: they are compared with heavy-tailed noise, so that only a huge step passes.
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np
import numpy.typing as npt

from karat.changepoints.detector.noise import Floats

_SEED = 20231117
_ROWS = 1500  # of simulated rows: their tail is a power, and needs many of them


def cuts_of_few(row: Floats, *, floor: float, fewest: int) -> tuple[float, tuple[int, ...]]:
    """The best few cuts, and how clear they are among those of heavy-tailed noise (t with 3 degrees)."""
    n = row.shape[0]
    most = _most_cuts(n, fewest)
    left, last = _left_over(_without_spikes((row - row.mean())[None, :]), fewest, most)
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
    ratios = _ratios(_left_over(_without_spikes(rows), fewest, _most_cuts(n, fewest))[0], 0.0)
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


def _left_over(rows: Floats, fewest: int, most: int) -> tuple[Floats, npt.NDArray[np.int64]]:
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
