"""History: commits of a branch in their order, and when each became part of it. Pure.

Dates of commits lie: clocks are wrong, rebases keep old dates. The order on the branch does not. So the dates that
are believed are the longest part of them that does not go backwards along the branch, and a commit whose date is not
believed has that of the believed one before it (of the first believed one, where none is before). Of all ways
to put the dates in order this disbelieves the fewest.
"""

from __future__ import annotations

import heapq
from bisect import bisect_right
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime

import msgspec


class Commit(msgspec.Struct, frozen=True, array_like=True):
    """One commit, and when it became part of its branch: seconds since 1970, never less than the one before."""

    id: str
    time: int


def believed(dates: Sequence[int]) -> list[int]:
    """The dates put in order: never backwards, with as few as possible changed."""
    keep = _longest(dates)
    found: list[int] = []
    current = dates[keep[0]] if keep else 0
    kept = set(keep)
    for index, date in enumerate(dates):
        if index in kept:
            current = date
        found.append(current)
    return found


def _longest(dates: Sequence[int]) -> list[int]:
    """Indices of a longest part that does not go backwards (patience sorting)."""
    tails: list[int] = []  # The smallest date that ends a part of each length,
    ends: list[int] = []  # and where it stands.
    before: list[int] = []
    for index, date in enumerate(dates):
        place = bisect_right(tails, date)
        before.append(ends[place - 1] if place else -1)
        if place == len(tails):
            tails.append(date)
            ends.append(index)
        else:
            tails[place], ends[place] = date, index
    found = []
    index = ends[-1] if ends else -1
    while index >= 0:
        found.append(index)
        index = before[index]
    return found[::-1]


def parse(lines: Iterable[str]) -> tuple[list[Commit], int]:
    """Commits of `TIME ID` lines, oldest first; and how many dates were not believed."""
    pairs = [line.split() for line in lines if line]
    dates = [int(time) for time, _ in pairs]
    right = believed(dates)
    commits = [Commit(commit, time) for (_, commit), time in zip(pairs, right, strict=True)]
    return commits, sum(1 for a, b in zip(dates, right, strict=True) if a != b)


def at(commits: Sequence[Commit], time: float) -> int:
    """Index of the last commit that was part of the branch at that time; −1 before the first."""
    return bisect_right(commits, time, key=lambda commit: commit.time) - 1


def instants(start: float, end: float, step: float) -> list[float]:
    """From start by step, and the end itself."""
    count = int((end - start) // step) + 1
    found = [start + i * step for i in range(count)]
    return found if found[-1] == end else [*found, end]


def interleaved(lines: Mapping[str, Sequence[Commit]]) -> list[tuple[str, Commit]]:
    """The moves of several repositories by time: which one moves, and to which commit.

    Each keeps its own order; at the same moment the one that is named first moves first.
    """
    moves = (
        [(commit.time, place, index, name, commit) for index, commit in enumerate(line)]
        for place, (name, line) in enumerate(lines.items())
    )
    return [(name, commit) for _, _, _, name, commit in heapq.merge(*moves)]


def moment(seconds: float) -> datetime:
    """Seconds since 1970 as a time with its zone."""
    return datetime.fromtimestamp(seconds, tz=UTC)
