"""Asking: whether a piece of a row has a step, given all that the rest of the row says of the noise.

In: a row, the cuts that are known, a piece. Out: `Found`. Pure.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from karat.changes.chance import FEW, by_noise, by_permutation, on_its_own
from karat.changes.locating import locate
from karat.changes.options import DetectOptions
from karat.changes.robust import robust_spread
from karat.changes.scanning import NOTHING, Floats, Found

_SMALL = 40
"""Longer pieces are judged by their own noise, unless there is as much of it outside of them."""
_NOISIER = 1.5
"""A piece this much noisier than the rest has noise of its own."""
_ENOUGH_NOISE = 12
_AROUND = 1000
"""Values on either side of a piece that its noise is known by."""
_PERMUTED_TELL = 12
"""A row of fewer values has too few permutations to tell anything."""
_OWN_SHARE = 5.0


class Row(NamedTuple):
    """A row of values, and what is known of its noise."""

    values: Floats
    rho: float
    floor: float
    options: DetectOptions


def ask_whole(row: Row) -> Found:
    """Whether a whole row has a step."""
    fewest = row.options.min_points
    permuted = by_permutation(
        row.values, rho=row.rho, fewest=fewest, alpha=row.options.false_alarms
    )
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


def ask(row: Row, cuts: Sequence[int], start: int, stop: int) -> Found:
    """Whether a piece has a step."""
    fewest = row.options.min_points
    piece = row.values[start:stop]
    size = stop - start
    if size < 2 * fewest:
        return NOTHING
    noise = _left_over(row, cuts, start, stop)
    if size > _SMALL and noise.shape[0] < 2 * size:
        share = row.options.false_alarms * size / row.values.shape[0]
        return by_permutation(piece, rho=row.rho, fewest=fewest, alpha=share)
    if noise.shape[0] < _ENOUGH_NOISE:
        return on_its_own(piece, floor=row.floor, fewest=fewest)
    spread = max(robust_spread(noise), row.floor)
    own = robust_spread(np.diff(piece)) / np.sqrt(2 * (1 - row.rho))
    noisier = own / spread if own > _NOISIER * spread else 1.0
    return by_noise(
        piece / (spread * noisier),
        noise / spread,
        unseen=row.floor / spread,
        rho=row.rho,
        fewest=fewest,
    )


def _left_over(row: Row, cuts: Sequence[int], start: int, stop: int) -> Floats:
    """What levels leave over outside of a piece, and inside of it on both sides of its best split."""
    from_here, to_here = max(0, start - _AROUND), min(row.values.shape[0], stop + _AROUND)
    known = [*cuts[bisect_right(cuts, from_here) : bisect_left(cuts, to_here)]]
    outer = [cut for cut in known if not start < cut < stop]
    split = locate(row.values[start:stop], row.options.min_points).at + start
    parts = []
    for left, right in pairwise(sorted({from_here, *outer, start, split, stop, to_here})):
        part = row.values[left:right]
        if part.shape[0] >= 3:
            parts.append((part - np.median(part)) * np.sqrt(part.shape[0] / (part.shape[0] - 1)))
    return np.concatenate(parts) if parts else np.zeros(0)
