"""Chance: how likely a row without a step looks like one that has one.

In: a row, and what is known of its noise. Out: `Found`, with an honest p-value. Pure; the same row gives the same answer.

Three ways to know what chance does:
- a long row says it itself: its permutations;
- a short one within a series, by what is left over everywhere else;
- a short one on its own has nothing but itself: it is compared with heavy-tailed noise, so that only a huge step passes.
"""

from __future__ import annotations

from functools import lru_cache
from statistics import NormalDist

import numpy as np

from karat.changes.partitions import cuts, left_over, without_spikes
from karat.changes.robust import clipped
from karat.changes.scanning import (
    NOTHING,
    Floats,
    Found,
    clearest_height,
    scan,
    sum_variance,
    tail_probability,
)

_SEED = 20231117
_ROWS = 256
_FEW_ROWS = 1500
"""Of simulated short rows: their tail is a power, and needs more of them."""
FEW = 40
"""Rows shorter than this may be judged on their own against heavy-tailed noise."""
_FEWEST_PERMUTED = 8
_FAR = 30.0
"""Standard deviations that count within a series whose noise is known."""


def by_permutation(row: Floats, *, rho: float, fewest: int, alpha: float) -> Found:
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
    if clearest_height(real, rho=0.0, fewest=fewest) < least:
        return NOTHING
    generator = np.random.default_rng(_SEED)
    chance = generator.permuted(np.tile(values, (_rows(n), 1)), axis=1)
    return scan(real, chance, spread=spread, rho=rho, fewest=fewest, own_spread=True)


def _rows(n: int) -> int:
    return max(64, min(_ROWS, 2**18 // n))


def by_noise(row: Floats, noise: Floats, *, unseen: float, rho: float, fewest: int) -> Found:
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


def on_its_own(row: Floats, *, floor: float, fewest: int) -> Found:
    """How clear the best few steps of a short row are among rows of heavy-tailed noise (t with 3 degrees)."""
    n = row.shape[0]
    if n < 2 * fewest or n > FEW:
        return NOTHING
    left, last = left_over(
        without_spikes((row - row.mean())[None, :]), fewest, _most_cuts(n, fewest)
    )
    if left[0, 0] <= n * floor**2:
        return NOTHING
    chance, middle, width = _own_chance(n, fewest)
    heights = (_ratios(left, n * floor**2)[0] - middle) / width
    number = int(np.argmax(heights)) + 1
    return Found(tail_probability(float(heights.max()), chance), cuts(last, number))


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
