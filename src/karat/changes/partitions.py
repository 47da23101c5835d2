"""Partitions: the best ways to cut short rows into levels, all of them tried.

In: rows of one length. Out: what the best partition into 2, 3, … levels leaves over. Pure.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from karat.changes.scanning import Floats


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
    near = np.array(
        [[j for j in range(max(0, min(i - 2, n - 5)), n) if j != i][:4] for i in range(n)]
    )
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
