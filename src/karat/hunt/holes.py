"""Holes: which point to take where the wanted one cannot be run.

Pure. Neighbours of a broken point are often broken as well, so the next try keeps its distance, twice as far each time;
a stretch that is broken again and again is closed in from both sides, and not tried point by point.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Collection, Sequence

_RANGE = 6
_WORTH = 8


def near(
    wanted: int, low: int, high: int, dead: Sequence[int], taken: Collection[int] = ()
) -> int | None:
    """The point from low to high to run instead of `wanted`: none of the dead (sorted) nor of the taken ones."""
    inside = dead[bisect_left(dead, low) : bisect_left(dead, high + 1)]
    if broken_range(inside):
        return _closing_in(low, high, inside, taken)
    keep = 1 << min(max(len(inside) - 1, 0), 20)
    while keep:
        found = _outward(wanted, (low, high), inside, taken, keep)
        if found is not None:
            return found
        keep //= 2
    return None


def broken_range(inside: Sequence[int]) -> bool:
    """Whether what lies among these broken points counts as broken, too, being too much to try."""
    return len(inside) >= _RANGE and inside[-1] - inside[0] + 1 - len(inside) > _WORTH


def untried(low: int, high: int, dead: Sequence[int]) -> int:
    """How many points strictly between two that run are worth a try."""
    inside = dead[bisect_left(dead, low + 1) : bisect_left(dead, high)]
    if broken_range(inside):
        return (inside[0] - low - 1) + (high - inside[-1] - 1)
    return high - low - 1 - len(inside)


def _outward(
    wanted: int, ends: tuple[int, int], inside: Sequence[int], taken: Collection[int], keep: int
) -> int | None:
    low, high = ends
    for offset in range(high - low + 1):
        for index in (wanted + offset, wanted - offset) if offset else (wanted,):
            if low <= index <= high and index not in taken and _distance(index, inside) >= keep:
                return index
    return None


def _distance(index: int, inside: Sequence[int]) -> int:
    at = bisect_left(inside, index)
    after = inside[at] - index if at < len(inside) else 1 << 60
    before = index - inside[at - 1] if at else 1 << 60
    return min(after, before)


def _closing_in(low: int, high: int, inside: Sequence[int], taken: Collection[int]) -> int | None:
    """The middle of the longer of the two stretches that touch a point that runs."""
    sides = sorted([(low, inside[0] - 1), (inside[-1] + 1, high)], key=lambda s: s[0] - s[1])
    for first, last in sides:
        found = _outward((first + last) // 2, (first, last), (), taken, 1)
        if found is not None:
            return found
    return None
