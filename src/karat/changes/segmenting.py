"""Segmenting: where a row of values changes its level.

In: values, scaled by nobody. Out: cuts, each with its p-value and where else it may lie. Pure.

Top down: the whole row is asked first, and where it says "no step" nothing is reported: this keeps the promised rate of
false alarms. Pieces are asked again, each at its share of that rate, until none has a step. Then every cut is moved to
where it fits best, and those that the pieces at their sides do not bear out are taken back, the weakest first.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from karat.changes.chance import FEW, by_noise, by_permutation, on_its_own
from karat.changes.dependence import autocorrelation
from karat.changes.locating import Place, fit, locate
from karat.changes.options import DetectOptions
from karat.changes.robust import robust_spread
from karat.changes.scanning import NOTHING, Floats, Found

_SMALL = 40
"""Longer pieces are judged by their own noise, unless there is as much of it outside of them."""
_NOISIER = 1.5
"""A piece this much noisier than the rest has noise of its own."""
_ENOUGH_NOISE = 12
_SWEEPS = 4
_PERMUTED_TELL = 12
"""A row of fewer values has too few permutations to tell anything."""
_OWN_SHARE = 5.0


class Cut(NamedTuple):
    """One place where the level changes: before position `at`."""

    at: int
    low: int
    high: int
    """The positions it may be at."""
    p_value: float


class Segmented(NamedTuple):
    """A row cut into levels."""

    cuts: tuple[Cut, ...]
    rho: float
    noise: float
    """Robust standard deviation of the values about their levels."""


class _Row(NamedTuple):
    values: Floats
    rho: float
    floor: float
    options: DetectOptions


def segment(values: Floats, options: DetectOptions, *, floor: float = 0.0) -> Segmented:
    """Cut a row of finite values of moderate size into levels; `floor` is noise that the values do not show."""
    row = _Row(values, autocorrelation(values, options.min_points), floor, options)
    places = _settle(row, _top_down(row))
    cuts = _take_back(row, places)
    return Segmented(tuple(cuts), row.rho, _noise(row, [cut.at for cut in cuts]))


def _top_down(row: _Row) -> list[int]:
    n = row.values.shape[0]
    whole = _ask_whole(row)
    if whole.p_value > row.options.false_alarms or not whole.cuts:
        return []
    cuts = fit(row.values, whole.cuts, 0, n, row.options.min_points)
    for _ in range(_SWEEPS):
        new: list[int] = []
        for start, stop in _pieces(cuts, n):
            new.extend(_inside(row, cuts, start, stop))
        if not new:
            break
        cuts = sorted({*cuts, *new})
    return cuts


def _inside(row: _Row, cuts: Sequence[int], start: int, stop: int) -> list[int]:
    """Cuts of one piece, and of its pieces."""
    n = row.values.shape[0]
    found = _ask(row, cuts, start, stop)
    if found.p_value > row.options.false_alarms * (stop - start) / n or not found.cuts:
        return []
    own = fit(row.values, [start + cut for cut in found.cuts], start, stop, row.options.min_points)
    cuts = sorted({*cuts, *own})
    edges = [start, *own, stop]
    for left, right in pairwise(edges):
        own.extend(_inside(row, cuts, left, right))
    return own


def _ask_whole(row: _Row) -> Found:
    fewest = row.options.min_points
    permuted = by_permutation(row.values, rho=row.rho, fewest=fewest)
    if row.values.shape[0] > FEW:
        return permuted
    own = on_its_own(row.values, floor=row.floor, fewest=fewest)
    # Two looks share the rate of false alarms: where there are permutations enough, they have most of it.
    looks = [
        Found(own.p_value * _OWN_SHARE, own.cuts),
        Found(permuted.p_value * 1.25, permuted.cuts),
    ]
    best = min(looks) if row.values.shape[0] >= _PERMUTED_TELL else own
    return Found(min(1.0, best.p_value), best.cuts)


def _ask(row: _Row, cuts: Sequence[int], start: int, stop: int) -> Found:
    """Whether a piece has a step."""
    fewest = row.options.min_points
    piece = row.values[start:stop]
    size = stop - start
    if size < 2 * fewest:
        return NOTHING
    noise = _left_over(row, cuts, start, stop)
    if size > _SMALL and noise.shape[0] < 2 * size:
        return by_permutation(piece, rho=row.rho, fewest=fewest)
    if noise.shape[0] < _ENOUGH_NOISE:
        return on_its_own(piece, floor=row.floor, fewest=fewest)
    spread = max(robust_spread(noise), row.floor)
    noise = np.clip(noise / spread, -6, 6)
    spread *= float(np.sqrt((noise**2).mean())) or 1.0
    own = robust_spread(np.diff(piece)) / np.sqrt(2 * (1 - row.rho))
    if own > _NOISIER * spread:
        spread = own
    return by_noise(piece / spread, noise / (float(noise.std()) or 1.0), rho=row.rho, fewest=fewest)


def _left_over(row: _Row, cuts: Sequence[int], start: int, stop: int) -> Floats:
    """What levels leave over outside of a piece, and inside of it on both sides of its best split."""
    inner = [cut for cut in cuts if not start < cut < stop]
    split = locate(row.values[start:stop], row.options.min_points).at + start
    parts = []
    for left, right in _pieces(
        sorted({*inner, start, stop, split} - {0, row.values.shape[0]}), row.values.shape[0]
    ):
        part = row.values[left:right]
        if part.shape[0] >= 3:
            parts.append((part - np.median(part)) * np.sqrt(part.shape[0] / (part.shape[0] - 1)))
    return np.concatenate(parts) if parts else np.zeros(0)


def _settle(row: _Row, cuts: Sequence[int]) -> list[Place]:
    """Every cut where it fits best between its neighbours."""
    places = [Place(cut, cut, cut) for cut in sorted(set(cuts))]
    n = row.values.shape[0]
    for _ in range(2):
        for number in range(len(places)):
            start = places[number - 1].at if number else 0
            stop = places[number + 1].at if number + 1 < len(places) else n
            place = locate(
                row.values[start:stop], row.options.min_points, rho=row.rho, floor=row.floor,
                sure=row.options.location,
            )  # fmt: skip
            places[number] = Place(place.at + start, place.low + start, place.high + start)
    return places


def _take_back(row: _Row, places: Sequence[Place]) -> list[Cut]:
    """Without the cuts that the pieces at their sides do not bear out."""
    n = row.values.shape[0]
    kept = list(places)
    while kept:
        at = [place.at for place in kept]
        edges = [0, *at, n]
        judged = []
        for number, place in enumerate(kept):
            start, stop = edges[number], edges[number + 2]
            found = _ask_pair(row, at, start, stop)
            p_value = min(1.0, found.p_value * n / (stop - start))
            judged.append(Cut(place.at, place.low, place.high, p_value))
        doubts = [2.0 if _no_step(row, at, cut.at) else cut.p_value for cut in judged]
        if max(doubts) <= row.options.false_alarms:
            return judged
        weakest = judged[int(np.argmax(doubts))]
        kept = _settle(row, [place.at for place in kept if place.at != weakest.at])
    return []


def _ask_pair(row: _Row, at: Sequence[int], start: int, stop: int) -> Found:
    if start == 0 and stop == row.values.shape[0]:
        return _ask_whole(row)
    return _ask(row, at, start, stop)


def _no_step(row: _Row, at: Sequence[int], cut: int) -> bool:
    """Whether a cut is smaller than anyone wants to know, or the work of one wild value."""
    edges = [0, *at, row.values.shape[0]]
    number = edges.index(cut)
    left, right = row.values[edges[number - 1] : cut], row.values[cut : edges[number + 1]]
    before, after = float(np.median(left)), float(np.median(right))
    if abs(after - before) < row.options.smallest * abs(before):
        return True
    return _one_wild(left, after) or _one_wild(right, before)


def _one_wild(few: Floats, other: float) -> bool:
    """Whether two values have their level from one of them alone: one stayed where the others are."""
    distances = np.abs(few - other)
    return few.shape[0] == 2 and float(distances.min()) < 0.4 * float(distances.max())


def _noise(row: _Row, cuts: Sequence[int]) -> float:
    parts = [part - np.median(part) for part in np.split(row.values, cuts)]
    return max(robust_spread(np.concatenate(parts)), row.floor)


def _pieces(cuts: Sequence[int], n: int) -> list[tuple[int, int]]:
    edges = [0, *cuts, n]
    return list(pairwise(edges))
