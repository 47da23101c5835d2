"""Splitting: which runs decide most, given where changes are likely.

Pure. A stretch that surely holds a change is split in the middle. One that may hold a change is looked at where it is in
doubt: a tested point that belongs to neither side is run again; else a new place is run, which is as good a witness and
narrows the stretch as well.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Collection, Iterator, Mapping, Sequence
from itertools import pairwise

import msgspec

from karat.hunt.holes import near, untried
from karat.hunt.levels import Map
from karat.hunt.wishes import SPECULATION, Wish

DOUBT = 0.03
"""A stretch that is less likely than this to hold a change is left alone."""
SURE = 0.95
"""A stretch that is more likely than this to hold a change is split."""
REPEATS = 10
"""So often a point is run at most."""


class Board(msgspec.Struct, frozen=True, kw_only=True):
    """What a plan is made from."""

    map: Map
    runs: Mapping[int, int]
    """Position → numbers it has."""
    dead: Sequence[int]
    pending: Mapping[int, int]
    confidence: float


def split_wishes(board: Board, room: int) -> list[Wish]:
    """Runs that would decide something, best first."""
    wishes = [
        Wish(1.2, at, "again: off its level") for at in board.map.odd if not board.pending.get(at)
    ]
    for i in range(len(board.map.chance)):
        wishes += _gap(board, i, room)
    return wishes


def _gap(board: Board, i: int, room: int) -> Iterator[Wish]:
    chance = float(board.map.chance[i])
    low, high = board.map.positions[i], board.map.positions[i + 1]
    if chance < DOUBT:
        return
    inside = untried(low, high, board.dead)
    if not inside:
        yield from _closed(board, i, chance)
        return
    doubtful = _doubtful(board, i) if chance < SURE else None
    if doubtful is not None:
        yield from _rerun(board, doubtful, chance, "again: unsure which side it is on")
        return
    rank = 3 - min(chance, 0.999)
    places = halves(low, high, board.dead, board.pending)
    for k, index in zip(range(room if chance >= SURE else 1), places, strict=False):
        # One in flight is what this stretch waits for; what lies beyond it is a guess.
        ahead = k or any(low < at < high for at in board.pending)
        yield Wish(SPECULATION + k if ahead else rank, index, f"midpoint of {low} and {high}")


def _closed(board: Board, i: int, chance: float) -> Iterator[Wish]:
    """Neighbours: run again until the answer is sure enough."""
    if settled(board, i):
        return
    # A change that is sure lacks only a second look at its neighbours: the one that was looked at least.
    doubtful = _doubtful(board, i) if chance < board.confidence else None
    if doubtful is None:
        ends = board.map.positions[i : i + 2]
        doubtful = min(ends, key=lambda at: board.runs[at] + board.pending.get(at, 0))
    yield from _rerun(board, doubtful, chance, "again: next to a change")


def settled(board: Board, i: int) -> bool:
    """Whether a pair of neighbours needs no more runs: surely a change, or surely none."""
    chance = float(board.map.chance[i])
    ends = board.map.positions[i : i + 2]
    believed = all(board.runs[at] >= board.map.needed for at in ends)
    return chance < DOUBT or (chance >= board.confidence and believed)


def _doubtful(board: Board, i: int) -> int | None:
    """The end of a stretch whose other side may hold the change as well; at the very end there is no other side."""
    chances, positions = board.map.chance, board.map.positions
    here = float(chances[i])
    before = float(chances[i - 1]) if i else here
    after = float(chances[i + 1]) if i + 1 < len(chances) else here
    options = [(before, positions[i]), (after, positions[i + 1])]
    enough = max(DOUBT, 0.05 * here)
    open_ = [(c, at) for c, at in options if c >= enough and board.runs[at] < REPEATS]
    # A point that settled the question by many runs is no witness of doubt; the one with fewer runs is.
    return min(open_, key=lambda o: (board.runs[o[1]], -o[0]))[1] if open_ else None


def _rerun(board: Board, index: int, chance: float, why: str) -> Iterator[Wish]:
    if board.runs[index] < REPEATS and not board.pending.get(index):
        yield Wish(2 - min(chance, 1 - chance), index, why)


def halves(low: int, high: int, dead: Sequence[int], pending: Collection[int]) -> Iterator[int]:
    """The middle of the longest piece, again and again; pieces end where something is in flight."""
    cuts = [low, *sorted(at for at in pending if low < at < high), high]
    pieces = [(a - b, a, b) for a, b in pairwise(cuts)]
    heapq.heapify(pieces)
    while pieces:
        _, a, b = heapq.heappop(pieces)
        found = near((a + b) // 2, a + 1, b - 1, dead)
        if found is None:
            continue
        yield found
        heapq.heappush(pieces, (a - found, a, found))
        heapq.heappush(pieces, (found - b, found, b))


def expected_left(board: Board) -> int:
    """Runs still to come, roughly: halvings of what holds a change, a few more where it is in doubt."""
    total = 0.0
    for i, chance in enumerate(board.map.chance):
        if chance < DOUBT:
            continue
        inside = untried(board.map.positions[i], board.map.positions[i + 1], board.dead)
        if inside:
            total += float(chance) * (math.log2(inside + 1) + 1)
        elif not settled(board, i):
            total += 1
    return math.ceil(total)
