"""Locating: where exactly a row that has one step has it.

In: a row with one step. Out: `Place`. Pure.

The split that leaves least over, with wild values clipped; every other split is as likely as what it leaves over
says, and the range holds as many of them as are needed to be sure.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from karat.changes.robust import clipped
from karat.changes.scanning import Floats

_CLIP = 3.0


class Place(NamedTuple):
    """Before which position a step is, and before which it may be."""

    at: int
    low: int
    high: int


def locate(
    row: Floats, fewest: int, *, rho: float = 0.0, floor: float = 0.0, sure: float = 0.95
) -> Place:
    """The best place for the one step of a row."""
    n = row.shape[0]
    fewest = max(1, min(fewest, n // 2))
    explained, _ = _explained(clipped(row), fewest)
    at = int(np.argmax(explained)) + fewest
    # Now that there are two levels, wild values can be told from them.
    values = _without_wild(row, at)
    explained, left = _explained(values, fewest)
    at = int(np.argmax(explained)) + fewest
    variance = max(float(left.min()) / max(n - 2, 1), floor**2) * (1 + rho) / (1 - rho)
    if variance <= 0:
        return Place(at, at, at)
    weights = np.exp(np.maximum((explained - explained.max()) / (2 * variance), -700))
    share = np.cumsum(weights) / weights.sum()
    low = int(np.searchsorted(share, (1 - sure) / 2)) + fewest
    high = int(np.searchsorted(share, 1 - (1 - sure) / 2)) + fewest
    return Place(at, min(low, at), max(min(high, n - fewest), at))


def fit(values: Floats, cuts: Sequence[int], start: int, stop: int, fewest: int) -> list[int]:
    """Cuts of one piece, each moved to where it fits best: the sizes of stretches that are tried have gaps."""
    moved = list(cuts)
    for _ in range(2):
        for number in range(len(moved)):
            left = moved[number - 1] if number else start
            right = moved[number + 1] if number + 1 < len(moved) else stop
            moved[number] = left + locate(values[left:right], fewest).at
    return moved


def _explained(row: Floats, fewest: int) -> tuple[Floats, Floats]:
    """What each split explains of the sum of squares, and what it leaves."""
    n = row.shape[0]
    centred = row - row.mean()
    k = np.arange(fewest, n - fewest + 1)
    sums = np.cumsum(centred)[fewest - 1 : n - fewest]
    explained = sums**2 * n / (k * (n - k))
    return explained, np.maximum(float(centred @ centred) - explained, 0)


def _without_wild(row: Floats, at: int) -> Floats:
    left, right = float(np.median(row[:at])), float(np.median(row[at:]))
    residuals = np.concatenate([row[:at] - left, row[at:] - right])
    spread = 1.4826 * float(np.median(np.abs(residuals)))
    if spread <= 0:
        return row
    return np.clip(row, min(left, right) - _CLIP * spread, max(left, right) + _CLIP * spread)
