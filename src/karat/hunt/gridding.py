"""Grid: the coarse look at the whole timeline, so that no dip as long as the grid is passed by.

Pure. Between two tested points that run there are fewer points than the grid is wide, as long as enough can be run.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Sequence
from itertools import pairwise

from karat.hunt.holes import near
from karat.hunt.wishes import Wish

_TRIES = 3


def chosen(count: int, wanted: int) -> int:
    """The grid for so many points: what is wanted, or about the root of the count."""
    return max(1, min(wanted, max(count - 1, 1))) if wanted > 0 else max(2, round(math.sqrt(count)))


def slots(count: int, grid: int) -> tuple[int, ...]:
    """Where to look first: both ends, then coarse to fine; a third closer than the grid, to have room for broken ones."""
    if count <= 1:
        return tuple(range(count))
    pieces = math.ceil((count - 1) / max(1, grid - grid // 3))
    places = [round(k * (count - 1) / pieces) for k in range(pieces + 1)]
    return tuple(dict.fromkeys(places[k] for k in _coarse_to_fine(pieces + 1)))


def _coarse_to_fine(size: int) -> Iterator[int]:
    """0, the last, the middle, the middles of the halves, …"""
    yield 0
    yield size - 1
    pieces = [(0, size - 1)]
    while pieces:
        finer = []
        for low, high in pieces:
            if high - low > 1:
                half = (low + high) // 2
                yield half
                finer += [(low, half), (half, high)]
        pieces = finer


def grid_wishes(
    count: int, grid: int, there: Collection[int], dead: Collection[int], again: Collection[int]
) -> list[Wish]:
    """What the grid still lacks. `there`: points that have values, or are in flight."""
    tried = {*there, *dead, *again}
    wishes = [
        Wish(k * 1e-6, at, "end point" if at in {0, count - 1} else "grid")
        for k, at in enumerate(slots(count, grid))
        if at not in tried
    ]
    if wishes:
        return wishes
    holes = sorted({*dead, *again})
    present = sorted(there)
    return [*_ends(count, present, holes), *_wide(grid, present, holes)]


def _ends(count: int, present: Sequence[int], holes: Sequence[int]) -> Iterator[Wish]:
    """An end that cannot be run: further in, twice as far each time."""
    first, last = (present[0], present[-1]) if present else (count, -1)
    low = (1 << sum(hole < first for hole in holes)) - 1
    high = count - (1 << sum(hole > last for hole in holes))
    for wanted, inside in ((low, low < first), (high, high > last)):
        if inside and 0 <= wanted < count and wanted not in holes:
            yield Wish(0.5, wanted, "in place of an end point that cannot be run")


def _wide(grid: int, present: Sequence[int], holes: Sequence[int]) -> Iterator[Wish]:
    """Where a broken grid point left too wide a stretch."""
    for a, b in pairwise(present):
        pieces = math.ceil((b - a) / grid)
        if pieces < 2 or sum(a < hole < b for hole in holes) >= _TRIES * pieces:
            continue
        taken: set[int] = set()
        for k in range(1, pieces):
            found = near(a + round(k * (b - a) / pieces), a + 1, b - 1, holes, taken)
            if found is not None:
                taken.add(found)
                yield Wish(0.6, found, "in place of a grid point that cannot be run")
