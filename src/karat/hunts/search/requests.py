"""Requests: which runs one metric would like next. Pure.

First a grid, so that no dip as long as the grid is passed by. Then a stretch that surely holds a change is split in the
middle; one that may hold a change is looked at where it is in doubt: a tested point that belongs to neither side is run again,
else a new place is run, which is as good a witness and narrows the stretch as well. Neighbours of a broken point are often
broken, too: the next try keeps its distance, twice as far each time, and a stretch that is broken again and again is closed in
from both sides.
"""

from __future__ import annotations

import heapq
import math
from bisect import bisect_left, bisect_right
from collections.abc import Collection, Iterable, Iterator, Sequence
from itertools import accumulate, pairwise
from typing import NamedTuple

import msgspec

from karat.hunts.model import Ask, Runs
from karat.hunts.search.inference import ChangeMap
from karat.hunts.settings import SearchSettings

MIDPOINT = "midpoint of {} and {}"
SPECULATION = 4.0
DOUBT = 0.03  # A stretch that is less likely than this to hold a change is left alone.
SURE = 0.95  # A stretch that is more likely than this to hold a change is split.
_AGAIN, _FREE = 100.0, 1000.0  # Ranks of runs for slots that would be idle: more of what is wanted, and elsewhere.
_AT_ONCE = 3  # So many runs of one point are under way at most.
_RANGE, _WORTH = 6, 8  # So many broken points with more than so many others among them are a broken range.
_TRIES = 3


class RunRequest(NamedTuple):
    """One run that a metric would like."""

    rank: float  # Smaller is sooner: 0 the grid, 1 a second try, 2 what decides most, 4 speculation.
    at: int
    why: str
    ends: tuple[int, ...] = ()  # The points that `why` names.
    nth: int = 0  # Of several runs of one point at once.


def choose(requests: Iterable[RunRequest], room: int) -> tuple[Ask, ...]:
    """The first ones, each run once."""
    chosen: dict[tuple[int, int], Ask] = {}
    for request in requests:
        if len(chosen) >= room:
            break
        chosen.setdefault((request.at, request.nth), Ask(index=request.at, why=request.why, ends=request.ends))
    return tuple(chosen.values())


def most_runs(settings: SearchSettings, count: int) -> int:
    """What a search of so many points may take in all, confirming included: a sweep of the same precision."""
    return max(settings.runs_per_point * count, 20 + 2 * settings.confirmations)


def nearest_runnable(wanted: int, low: int, high: int, dead: Sequence[int], taken: Collection[int] = ()) -> int | None:
    """The point from low to high to run instead of `wanted`: none of the dead (sorted) nor of the taken ones."""
    inside = dead[bisect_left(dead, low) : bisect_left(dead, high + 1)]
    if is_broken_range(inside):
        # The middle of the longer of the two stretches that touch a point that runs.
        sides = sorted([(low, inside[0] - 1), (inside[-1] + 1, high)], key=lambda s: s[0] - s[1])
        tries = (_outward((first + last) // 2, (first, last), (), taken, 1) for first, last in sides)
        return next((found for found in tries if found is not None), None)
    keep = 1 << min(max(len(inside) - 1, 0), 20)
    while keep:
        found = _outward(wanted, (low, high), inside, taken, keep)
        if found is not None:
            return found
        keep //= 2
    return None


def is_broken_range(inside: Sequence[int]) -> bool:
    """Whether what lies among these broken points counts as broken, too, being too much to try."""
    return len(inside) >= _RANGE and inside[-1] - inside[0] + 1 - len(inside) > _WORTH


def count_untried(low: int, high: int, dead: Sequence[int]) -> int:
    """How many points strictly between two that run are worth a try."""
    inside = dead[bisect_left(dead, low + 1) : bisect_left(dead, high)]
    if is_broken_range(inside):
        return (inside[0] - low - 1) + (high - inside[-1] - 1)
    return high - low - 1 - len(inside)


def _outward(wanted: int, ends: tuple[int, int], inside: Sequence[int], taken: Collection[int], gap: int) -> int | None:
    """The nearest free point that keeps its distance from those inside, which are sorted."""
    low, high = ends
    for offset in range(high - low + 1):
        for index in (wanted + offset, wanted - offset) if offset else (wanted,):
            at = bisect_left(inside, index)
            beside = (abs(index - other) for other in inside[max(at - 1, 0) : at + 1])
            free = low <= index <= high and index not in taken
            if free and all(distance >= gap for distance in beside):
                return index
    return None


def grid_width(count: int, wanted: int) -> int:
    """The grid for so many points: what is wanted, or about the root of the count; of many points a 32nd."""
    if wanted > 0:
        return max(1, min(wanted, max(count - 1, 1)))
    return max(2, round(math.sqrt(count)), count // 32)


def grid_points(count: int, grid: int) -> tuple[int, ...]:
    """Where to look first: both ends, then coarse to fine; a third closer than the grid, to have room for broken ones."""
    if count <= 1:
        return tuple(range(count))
    pieces = math.ceil((count - 1) / max(1, grid - grid // 3))
    order = [0, pieces]
    halves = [(0, pieces)]
    for low, high in halves:  # which grows: the middle, the middles of the halves, …
        if high - low > 1:
            half = (low + high) // 2
            order.append(half)
            halves += [(low, half), (half, high)]
    return tuple(dict.fromkeys(round(k * (count - 1) / pieces) for k in order))


def grid_requests(
    count: int, grid: int, there: Collection[int], dead: Collection[int], again: Collection[int]
) -> list[RunRequest]:
    """What the grid still lacks. `there`: points that have values, or are in flight."""
    tried = {*there, *dead, *again}
    lacking = [(k, at) for k, at in enumerate(grid_points(count, grid)) if at not in tried]
    requests = [RunRequest(k * 1e-6, at, "end point" if at in {0, count - 1} else "grid") for k, at in lacking]
    if requests:
        return requests
    holes = sorted({*dead, *again})
    present = sorted(there)
    # An end that cannot be run: further in, twice as far each time.
    first, last = (present[0], present[-1]) if present else (count, -1)
    low = (1 << sum(hole < first for hole in holes)) - 1
    high = count - (1 << sum(hole > last for hole in holes))
    for wanted, inside in ((low, low < first), (high, high > last)):
        if inside and 0 <= wanted < count and wanted not in holes:
            requests.append(RunRequest(0.5, wanted, "in place of an end point that cannot be run"))
    if not (requests or present) and (found := nearest_runnable(count // 2, 0, count - 1, holes)) is not None:
        requests.append(RunRequest(0.5, found, "in place of an end point that cannot be run"))
    # Where a broken grid point left too wide a stretch.
    for a, b in pairwise(present):
        pieces = math.ceil((b - a) / grid)
        if pieces < 2 or sum(a < hole < b for hole in holes) >= _TRIES * pieces:
            continue
        taken: set[int] = set()
        for k in range(1, pieces):
            found = nearest_runnable(a + round(k * (b - a) / pieces), a + 1, b - 1, holes, taken)
            if found is not None:
                taken.add(found)
                requests.append(RunRequest(0.6, found, "in place of a grid point that cannot be run"))
    return requests


class SearchState(msgspec.Struct, frozen=True, kw_only=True):
    """What a plan is made from."""

    map: ChangeMap
    runs: Runs  # Position → numbers it has.
    dead: Sequence[int]
    pending: Runs
    confidence: float
    weights: Sequence[float] = ()


def split_requests(state: SearchState, room: int) -> list[RunRequest]:
    """Runs that would decide something, best first: what surely is a change comes before what may be one."""
    odd = [(at, nth) for at in state.map.odd for nth in range(state.pending.get(at, 0), _AT_ONCE)]
    requests = [RunRequest(_AGAIN + nth if nth else 1.2, at, "again: off its level", nth=nth) for at, nth in odd]
    for i, (low, high) in enumerate(pairwise(state.map.positions)):
        chance = float(state.map.chance[i])
        if chance < DOUBT:
            continue
        inside = count_untried(low, high, state.dead)
        if not inside and settled(state, i):
            continue
        # A change that is sure lacks only a second look at its neighbours: the one that was looked at least.
        doubtful = _doubtful(state, i) if chance < (SURE if inside else state.confidence) else None
        if not inside and doubtful is None:
            doubtful = min((low, high), key=lambda at: state.runs[at] + state.pending.get(at, 0))
        if doubtful is not None:
            # Neighbours are run again until the answer is sure enough.
            why = "again: unsure which side it is on" if inside else "again: next to a change"
            if state.runs[doubtful] < state.map.repeats and not state.pending.get(doubtful):
                rank = 1.1 if chance >= SURE else 2 - min(chance, 1 - chance)
                requests.append(RunRequest(rank, doubtful, why))
            # With room for it, both sides, and what they may need after that.
            ends = {at: min(_AT_ONCE, state.map.repeats - state.runs[at]) for at in (low, high)}
            more = ((at, nth) for at, end in ends.items() for nth in range(state.pending.get(at, 0), end))
            requests += [RunRequest(_AGAIN + nth, at, why, nth=nth) for at, nth in more if at != doubtful or nth]
            if not inside:
                continue
        places = midpoints(low, high, state.dead, state.pending, state.weights)
        for k, index in zip(range(room if chance >= SURE else 1), places, strict=False):
            # One in flight is what this stretch waits for; what lies beyond it is a guess.
            ahead = doubtful is not None or k or any(low < at < high for at in state.pending)
            rank = SPECULATION + k if ahead else 1 if chance >= SURE else 3 - chance
            twice = (RunRequest(_AGAIN + nth + k, index, MIDPOINT, (low, high), nth) for nth in range(1, _AT_ONCE))
            requests += [RunRequest(rank, index, MIDPOINT, (low, high)), *twice]
    return requests


def spare_requests(count: int, tried: Collection[int]) -> Iterator[RunRequest]:
    """For slots that would be idle: the middle of the longest stretch that nobody looked at, again and again."""
    ends = sorted({-1, *tried, count})
    places = midpoints(-1, count, [], ends[1:-1])
    return (RunRequest(_FREE + k, at, "a slot was free") for k, at in enumerate(places))


def settled(state: SearchState, i: int) -> bool:
    """Whether a pair of neighbours needs no more runs: surely a change, or surely none."""
    chance = float(state.map.chance[i])
    believed = all(state.runs[at] >= state.map.needed for at in state.map.positions[i : i + 2])
    return chance < DOUBT or (chance >= state.confidence and believed)


def _doubtful(state: SearchState, i: int) -> int | None:
    """The end of a stretch whose other side may hold the change as well; at the very end there is no other side."""
    chances, positions = state.map.chance, state.map.positions
    here = float(chances[i])
    before = float(chances[i - 1]) if i else here
    after = float(chances[i + 1]) if i + 1 < len(chances) else here
    options = [(before, positions[i]), (after, positions[i + 1])]
    enough = max(DOUBT, 0.05 * here)
    open_ = [(c, at) for c, at in options if c >= enough and state.runs[at] < state.map.repeats]
    # A point that settled the question by many runs is no witness of doubt; the one with fewer runs is.
    return min(open_, key=lambda o: (state.runs[o[1]], -o[0]))[1] if open_ else None


def midpoints(
    low: int, high: int, dead: Sequence[int], pending: Collection[int], weights: Sequence[float] = ()
) -> Iterator[int]:
    """The middle of the longest piece, or of the heaviest, again and again; pieces end where something is in flight."""
    cuts = [low, *sorted(at for at in pending if low < at < high), high]
    passed = list(accumulate(weights))

    def piece(a: int, b: int) -> tuple[float, int, int]:
        return (passed[a] - passed[b] if passed else a - b), a, b

    pieces = [piece(a, b) for a, b in pairwise(cuts)]
    heapq.heapify(pieces)
    while pieces:
        _, a, b = heapq.heappop(pieces)
        middle = bisect_right(passed, (passed[a] + passed[b]) / 2, a, b) - 1 if passed else (a + b) // 2
        found = nearest_runnable(max(middle, a + 1), a + 1, b - 1, dead)
        if found is None:
            continue
        yield found
        heapq.heappush(pieces, piece(a, found))
        heapq.heappush(pieces, piece(found, b))


def expected_left(state: SearchState) -> int:
    """Runs still to come, roughly: halvings of what holds a change, a few more where it is in doubt."""
    total = 0.0
    for i, chance in enumerate(state.map.chance):
        if chance < DOUBT:
            continue
        if inside := count_untried(state.map.positions[i], state.map.positions[i + 1], state.dead):
            total += float(chance) * (math.log2(inside + 1) + 1)
        elif not settled(state, i):
            total += 1
    return math.ceil(total)
