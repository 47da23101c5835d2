"""Scanning: the clearest step or stretch of a row of numbers, and how likely chance makes one as clear.

In: a row, rows that show what chance does, the row's autocorrelation. Out: `Found`. Pure.

Every split into two, and stretches of every scale against the rest, are looked at. Each scale has maxima of its own under
chance (short stretches have many places to be, and feel single wild values), so each is measured against its own, and
the best of all against the best of all: the p-value counts the choice of scale and place in. Chance is what the
caller says it is: permutations of the row itself make the test exact for exchangeable noise of any shape.
"""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.floating]

_SPARE = 1e-12


class Found(NamedTuple):
    """The clearest split of a row, or the clearest stretch in it."""

    p_value: float
    cuts: tuple[int, ...]
    """Where the row is to be cut: before these positions."""


NOTHING = Found(1.0, ())


class _Plan(NamedTuple):
    """What depends on a row's length alone: scales, and how far chance moves each sum."""

    sizes: tuple[int, ...]
    split_scale: Floats
    """Per split k = 1…n−1: the standard deviation of its sum."""
    stretch_scale: tuple[float, ...]
    """Per size."""


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
) -> Found:
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
    return Found(p_value, _place(sums[0], real, column, fewest))


def clearest_height(row: Floats, *, rho: float, fewest: int) -> float:
    """The height of the clearest split or stretch, in the row's own unit."""
    n = row.shape[0]
    return (
        float(_maxima(_sums(row[None, :]), _plan(n, rho, fewest)).max()) if n >= 2 * fewest else 0.0
    )


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
