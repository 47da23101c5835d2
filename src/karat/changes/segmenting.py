"""Segmenting: where a row of values changes its level.

In: values about 1 in size. Out: cuts, each with its p-value and where else it may lie. Pure.

Top down: the whole row is asked first, and where it says "no step" nothing is reported: this keeps the promised rate of
false alarms. Pieces are asked again, each at its share of that rate, until none has a step. Then every cut is moved to
where it fits best, and those that the pieces at their sides do not bear out are taken back, the weakest first.

A long row is cut twice: in means of neighbours, which shows small lasting steps, and in chunks, which shows short ones.
The two share the rate of false alarms.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple

import msgspec
import numpy as np

from karat.changes.asking import Row, ask, ask_whole
from karat.changes.dependence import autocorrelation
from karat.changes.locating import fit
from karat.changes.options import DetectOptions
from karat.changes.robust import robust_spread
from karat.changes.scanning import Floats
from karat.changes.taking_back import LONG, Cut, block_means, take_back

_SWEEPS = 4
_CHUNK = 1024
_STRIDE = 768
"""Chunks overlap, so that every step is well inside of one."""
_SAMPLED = 8
"""Chunks of a long row that its autocorrelation is taken from."""


class Segmented(NamedTuple):
    """A row cut into levels."""

    cuts: tuple[Cut, ...]
    rho: float
    noise: float
    """Robust standard deviation of the values about their levels."""


def segment(values: Floats, options: DetectOptions, *, floor: float = 1e-12) -> Segmented:
    """Cut a row of finite values into levels; `floor` is noise that the values do not show."""
    if values.shape[0] > LONG:
        row = Row(values, _long_autocorrelation(values, options.min_points), floor, options)
        found = _coarse(row) | _fine(row)
    else:
        row = Row(values, autocorrelation(values, options.min_points), floor, options)
        found = set(_top_down(row))
    cuts = take_back(row, _apart(sorted(found), options.min_points, values.shape[0]))
    return Segmented(cuts, row.rho, _noise(row, [cut.at for cut in cuts]))


def _top_down(row: Row) -> list[int]:
    n = row.values.shape[0]
    whole = ask_whole(row)
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


def _inside(row: Row, cuts: Sequence[int], start: int, stop: int) -> list[int]:
    """Cuts of one piece, and of its pieces."""
    n = row.values.shape[0]
    found = ask(row, cuts, start, stop)
    if found.p_value > row.options.false_alarms * (stop - start) / n or not found.cuts:
        return []
    own = fit(row.values, [start + cut for cut in found.cuts], start, stop, row.options.min_points)
    cuts = sorted({*cuts, *own})
    edges = [start, *own, stop]
    for left, right in pairwise(edges):
        own.extend(_inside(row, cuts, left, right))
    return own


def _long_autocorrelation(values: Floats, fewest: int) -> float:
    starts = np.linspace(0, values.shape[0] - _CHUNK, _SAMPLED).astype(int)
    return float(np.median([autocorrelation(values[i : i + _CHUNK], fewest) for i in starts]))


def _coarse(row: Row) -> set[int]:
    """Steps of a long row in means of neighbours, each then looked for among the values."""
    n = row.values.shape[0]
    size = -(-n // _CHUNK)
    means = block_means(row.values, size)
    options = msgspec.structs.replace(row.options, false_alarms=row.options.false_alarms / 2)
    rho = autocorrelation(means, options.min_points)
    found = set()
    for cut in _top_down(Row(means, rho, row.floor, options)):
        start, stop = max(0, (cut - 2) * size), min(n, (cut + 2) * size)
        found.update(fit(row.values, [cut * size], start, stop, options.min_points))
    return found


def _fine(row: Row) -> set[int]:
    """Steps within chunks of a long row."""
    n = row.values.shape[0]
    share = row.options.false_alarms / 2 * _STRIDE / n
    options = msgspec.structs.replace(row.options, false_alarms=share)
    found: set[int] = set()
    for start in range(0, n - _CHUNK + _STRIDE, _STRIDE):
        left = min(start, n - _CHUNK)
        chunk = row._replace(values=row.values[left : left + _CHUNK], options=options)
        found.update(left + cut for cut in _top_down(chunk))
    return found


def _apart(cuts: Sequence[int], fewest: int, n: int) -> list[int]:
    """Cuts without those that are nearer to the one before than a level is long: chunks find one step twice."""
    kept: list[int] = []
    for cut in cuts:
        if cut - (kept[-1] if kept else 0) >= fewest and n - cut >= fewest:
            kept.append(cut)
    return kept


def _noise(row: Row, cuts: Sequence[int]) -> float:
    parts = [part - np.median(part) for part in np.split(row.values, cuts)]
    return max(robust_spread(np.concatenate(parts)), row.floor)


def _pieces(cuts: Sequence[int], n: int) -> list[tuple[int, int]]:
    edges = [0, *cuts, n]
    return list(pairwise(edges))
