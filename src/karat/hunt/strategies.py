"""Strategies: sweep, bisect, adaptive, opened by what hunt.toml says.

Pure. What chooses its points sees only those that are there: those that are missing from the start are taken out before,
and put back into its answer.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Collection, Mapping, Sequence

from msgspec import structs

from karat.findings import UsageError, suggest
from karat.hunt.adaptive import Adaptive
from karat.hunt.bisecting import Bisect
from karat.hunt.searching import Ask, Decision, Metric, Seen, Span, Strategy
from karat.hunt.settings import SearchSettings
from karat.hunt.sweep import Sweep


def open_strategy(
    settings: SearchSettings,
    count: int,
    metrics: Sequence[Metric],
    *,
    missing: Collection[int] = (),
    names: Sequence[str] = (),
    levels: Mapping[str, tuple[float, float]] | None = None,
) -> Strategy:
    """The strategy of [search] for `count` points.

    `missing`: points that are not there. `names`: of all points, for bisect's good and bad. `levels`: what a coarser stage
    knows, metric → (before, after); the search is then for that one change.
    """
    gone = frozenset(missing)
    there = [at for at in range(count) if at not in gone]
    if settings.strategy == "sweep" and levels is None and there:
        return Sweep(settings, count, metrics, missing=gone, names=names)
    return Present(_open(settings, there, metrics, names, levels), there, count)


def _open(
    settings: SearchSettings,
    there: Sequence[int],
    metrics: Sequence[Metric],
    names: Sequence[str],
    levels: Mapping[str, tuple[float, float]] | None,
) -> Strategy:
    if settings.strategy == "sweep":
        # Between the two ends of a change one run of each tells noise from nothing: every point, and again in doubt.
        return Adaptive(structs.replace(settings, grid=1), len(there), metrics)
    if settings.strategy == "bisect":
        good = _named(settings.good, names, there, 0, "good")
        bad = _named(settings.bad, names, there, len(there) - 1, "bad")
        return Bisect(settings, len(there), metrics, good=good, bad=bad)
    return Adaptive(settings, len(there), metrics, zoom=levels is not None)


def _named(name: str, names: Sequence[str], there: Sequence[int], default: int, key: str) -> int:
    """The place of a point among those that are there; of one that is not, the next inside."""
    if not name or not there:
        return max(default, 0)
    if name not in names:
        raise UsageError(
            f"search.{key}: expected one of the {len(names)} points of the timeline, found {name!r}{suggest(name, names)}",
            next_command="edit [search] of hunt.toml",
        )
    return min(bisect_left(there, names.index(name)), len(there) - 1)


class Present:
    """A strategy over the points that are there."""

    def __init__(self, inner: Strategy, there: Sequence[int], count: int) -> None:
        self._inner = inner
        self._there = tuple(there)
        self._place = {at: k for k, at in enumerate(there)}
        self._gone = tuple(at for at in range(count) if at not in self._place)

    def decide(self, seen: Mapping[int, Seen], in_flight: Mapping[int, int], room: int) -> Decision:
        """What to run next."""
        if not self._there:
            return Decision(asks=(), expected_left=0, notes=("no point of the timeline is there",))
        place, there = self._place, self._there
        decision = self._inner.decide(
            {place[at]: one for at, one in seen.items() if at in place and one.outcomes},
            {place[at]: runs for at, runs in in_flight.items() if at in place and runs},
            room,
        )
        if not self._gone:
            return decision
        return structs.replace(
            decision,
            asks=tuple(self._ask(ask) for ask in decision.asks),
            likely_next=tuple(there[at] for at in decision.likely_next),
            spans=tuple(self._back(span) for span in decision.spans),
        )

    def _ask(self, ask: Ask) -> Ask:
        """Every number in a reason is a point's."""
        why = re.sub(r"\d+", lambda found: str(self._there[int(found[0])]), ask.why)
        return Ask(index=self._there[ask.index], why=why)

    def _back(self, span: Span) -> Span:
        good, bad = self._there[span.good], self._there[span.bad]
        gone = [at for at in self._gone if good < at < bad]
        inside = sorted([*gone, *(self._there[at] for at in span.between)])
        return structs.replace(span, good=good, bad=bad, between=tuple(inside))
