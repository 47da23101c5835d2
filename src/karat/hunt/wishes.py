"""Wishes: runs that one metric would like next, and how they become what is asked for.

Pure. Several metrics are searched at once; a run serves all of them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from karat.hunt.searching import Ask, Seen


class Wish(NamedTuple):
    """One run that a metric would like."""

    rank: float
    """Smaller is sooner: 0 the grid, 1 a second try, 2 what decides most, 4 speculation."""
    at: int
    why: str


SPECULATION = 4.0


def asks(wishes: Iterable[Wish], room: int) -> tuple[Ask, ...]:
    """The best ones, each point once."""
    chosen: dict[int, Ask] = {}
    for wish in sorted(wishes):
        if len(chosen) >= room:
            break
        chosen.setdefault(wish.at, Ask(index=wish.at, why=wish.why))
    return tuple(chosen.values())


def allowance(limit: int, seen: Mapping[int, Seen], in_flight: Mapping[int, int], room: int) -> int:
    """How many runs may start, with `limit` in all (0: no limit)."""
    if not limit:
        return max(room, 0)
    spent = sum(len(at.outcomes) for at in seen.values()) + sum(in_flight.values())
    return max(min(room, limit - spent), 0)
