"""Taking back: cuts where they fit best, without those that the pieces at their sides do not bear out.

In: a row and the cuts that were found going down. Out: `Cut`s that stand. Pure.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from karat.changes.asking import Row, ask, ask_whole
from karat.changes.dependence import autocorrelation
from karat.changes.locating import locate
from karat.changes.options import RAREST
from karat.changes.robust import CLIP, robust_spread
from karat.changes.scanning import Floats

LONG = 2048
"""Pieces longer than this are asked near their cut first, and then in means of their values."""


_BESIDE = 40
_TELL_NOISE = 8
"""Values beside a cut that its noise is known by: the nearest, and no fewer than can tell."""
_NOISIER = 2.0
_CLEAR = 3.7
"""Standard errors between two levels of unlike noise: what the best of a hundred splits has by chance."""


class Cut(NamedTuple):
    """One place where the level changes: before position `at`."""

    at: int
    low: int
    high: int
    """The positions it may be at."""
    p_value: float


def take_back(row: Row, cuts: Sequence[int]) -> tuple[Cut, ...]:
    """The cuts that stand, the weakest taken back first."""
    kept = [Cut(cut, cut, cut, 1.0) for cut in sorted(set(cuts))]
    for _ in range(2):
        for number in range(len(kept)):
            _settle(row, kept, number)
    for number in range(len(kept)):
        _judge(row, kept, number)
    while kept:
        weakest = max(range(len(kept)), key=lambda number: kept[number].p_value)
        if kept[weakest].p_value <= row.options.false_alarms:
            return tuple(cut._replace(p_value=max(cut.p_value, RAREST)) for cut in kept)
        del kept[weakest]
        # Only its neighbours see other pieces now.
        near = [number for number in (weakest - 1, weakest) if 0 <= number < len(kept)]
        for number in near:
            _settle(row, kept, number)
        for number in range(max(0, weakest - 2), min(len(kept), weakest + 2)):
            _judge(row, kept, number)
    return ()


def _sides(row: Row, kept: Sequence[Cut], number: int) -> tuple[int, int]:
    start = kept[number - 1].at if number else 0
    stop = kept[number + 1].at if number + 1 < len(kept) else row.values.shape[0]
    return start, stop


def _settle(row: Row, kept: list[Cut], number: int) -> None:
    """A cut where it fits best between its neighbours."""
    start, stop = _sides(row, kept, number)
    place = locate(
        row.values[start:stop], row.options.min_points, rho=row.rho, floor=row.floor,
        sure=row.options.location,
    )  # fmt: skip
    kept[number] = Cut(place.at + start, place.low + start, place.high + start, 1.0)


def _judge(row: Row, kept: list[Cut], number: int) -> None:
    """The p-value of a cut between its neighbours, for a row of this length."""
    start, stop = _sides(row, kept, number)
    n = row.values.shape[0]
    cut = kept[number]
    if _no_step(row, start, cut.at, stop):
        kept[number] = cut._replace(p_value=2.0)
        return
    at = [other.at for other in kept]
    if stop - start > LONG:
        p_value = _long_pair(row, start, cut.at, stop)
    elif start == 0 and stop == n:
        p_value = ask_whole(row).p_value
    else:
        p_value = ask(row, at, start, stop).p_value * n / (stop - start)
    kept[number] = cut._replace(p_value=min(1.0, p_value))


def _long_pair(row: Row, start: int, cut: int, stop: int) -> float:
    """Of two long pieces: by the values near the cut, or, where they do not tell, by means of all of them."""
    n = row.values.shape[0]
    left, right = max(start, cut - LONG // 2), min(stop, cut + LONG // 2)
    here = ask_whole(row._replace(values=row.values[left:right])).p_value
    near = float(here * n / (right - left))
    if near <= row.options.false_alarms:
        return near
    size = -(-(stop - start) // (LONG // 2))
    means = block_means(row.values[start:stop], size)
    coarse = row._replace(values=means, rho=autocorrelation(means, row.options.min_points))
    return ask_whole(coarse).p_value


def block_means(values: Floats, size: int) -> Floats:
    """Means of `size` neighbours each, single wild values clipped; the last, shorter block is left out."""
    count = values.shape[0] // size
    blocks = values[: count * size].reshape(count, size)
    middle = np.median(blocks, axis=1, keepdims=True)
    spread = CLIP * robust_spread(blocks - middle)
    return np.asarray(np.clip(blocks, middle - spread, middle + spread).mean(axis=1))


def _no_step(row: Row, start: int, cut: int, stop: int) -> bool:
    """Whether a cut is smaller than anyone wants to know, or the work of one wild value."""
    left, right = row.values[start:cut], row.values[cut:stop]
    before, after = float(np.median(left)), float(np.median(right))
    if abs(after - before) < row.options.smallest * abs(before):
        return True
    return _one_wild(left, after) or _one_wild(right, before) or _only_noisier(row, left, right)


def _only_noisier(row: Row, left: Floats, right: Floats) -> bool:
    """Whether one side is clearly noisier, and its level, by its own noise, no other.

    Permutations take noise for the same everywhere: a noisy end has sums that they hardly ever have.
    """
    left, right = left[-_BESIDE:], right[:_BESIDE]
    if min(left.shape[0], right.shape[0]) < _TELL_NOISE:
        return False
    calm, noisy = sorted(max(robust_spread(x - np.median(x)), row.floor) for x in (left, right))
    if noisy < _NOISIER * calm:
        return False
    error = np.hypot(
        *(robust_spread(x - np.median(x)) / np.sqrt(x.shape[0]) for x in (left, right))
    )
    alike = np.sqrt((1 + row.rho) / (1 - row.rho))
    return bool(abs(left.mean() - right.mean()) < _CLEAR * max(float(error), row.floor) * alike)


def _one_wild(few: Floats, other: float) -> bool:
    """Whether two values have their level from one of them alone: one stayed where the others are."""
    distances = np.abs(few - other)
    return few.shape[0] == 2 and float(distances.min()) < 0.4 * float(distances.max())
