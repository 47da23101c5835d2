"""Swaps: points that are mixed of an old and a new one, what they measured, and which of the two they are like. Pure."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from enum import StrEnum
from math import inf, prod, sqrt
from statistics import median

from karat.hunt.judging import Judgement
from karat.hunt.point import Point
from karat.hunt.readings import samples
from karat.hunt.searching import Metric, Seen
from karat.hunt.timeline import Timeline

_ROUNDS = 12
"""So often an unclear swap is run, at most; the two ends are run beside it, since machines drift."""
_NEAR, _BLUR = 0.25, 0.1
"""A share this near to none or all is that, if it is known this well."""
_ERRORS = 2.5
"""Standard errors by which a share must be off none and all to be neither."""
_FEW = 3
_LEAST = 2
"""One run of each proves little where a run may be unlucky."""


class Side(StrEnum):
    """What a mixed point is like."""

    OLD = "as old"
    NEW = "as new"
    BETWEEN = "between"
    ELSEWHERE = "like neither"
    BROKEN = "cannot be run"
    UNSURE = "unclear"


@dataclass(frozen=True, slots=True)
class Change:
    """Two points that differ, and the parts that moved between them."""

    timeline: Timeline
    old: Point
    new: Point
    moved: tuple[str, ...]

    def point(self, taken: Collection[str]) -> Point | None:
        """The old point with those parts of the new one."""
        return self.timeline.mixed(self.old, self.new, frozenset(taken))


class Swaps:
    """Every mix that was tried."""

    def __init__(
        self,
        change: Change,
        metric: Metric,
        measure: Callable[[Sequence[Point]], Sequence[Seen]],
        judge: Callable[[Seen, Seen], Judgement],
    ) -> None:
        self._change, self._metric = change, metric
        self._measure, self._judge = measure, judge
        self._seen: dict[frozenset[str], Seen] = {}
        self._nothing, self._everything = frozenset[str](), frozenset(change.moved)

    @property
    def moved(self) -> tuple[str, ...]:
        """The parts that moved."""
        return self._change.moved

    @property
    def whole(self) -> Side:
        """Whether the two ends still differ."""
        if not self._numbers(self._nothing) or not self._numbers(self._everything):
            return Side.BROKEN
        verdict = self._judge(self._seen[self._nothing], self._seen[self._everything]).verdict
        return {"differ": Side.NEW, "same": Side.OLD}.get(verdict, Side.UNSURE)

    def ask(self, wanted: Sequence[frozenset[str]]) -> None:
        """Run mixes, and again while it is unclear what they are like."""
        asked = [taken for taken in dict.fromkeys(wanted) if taken not in self._seen]
        if not asked:
            return
        for number in range(_ROUNDS):
            unclear = [t for t in asked if number < _LEAST or self.side(t) is Side.UNSURE]
            unclear = [t for t in unclear if number == 0 or self._numbers(t)]
            if number and self.whole in {Side.OLD, Side.BROKEN}:
                return
            if not unclear and self.whole is Side.NEW:
                return
            self._run([self._nothing, *unclear, self._everything])

    def side(self, taken: Collection[str]) -> Side:
        """What a mix is like."""
        chosen = frozenset(taken)
        if not self._numbers(chosen):
            return Side.BROKEN
        return self._placed(chosen)[0]

    def share(self, taken: Collection[str]) -> float:
        """How much of the way from the old level to the new one a mix goes."""
        old, here, new = (
            median(self._numbers(each))
            for each in (self._nothing, frozenset(taken), self._everything)
        )
        return (here - old) / (new - old) if new != old else 0.0

    def why(self, taken: Collection[str]) -> str:
        """Why nothing is known of a mix."""
        seen = self._seen.get(frozenset(taken))
        if seen is None:
            return "not tried"
        signature = next((text for text in seen.signatures if text), "")
        return f"{self.side(taken)}{f': {signature}' if signature else ''}"

    def sentences(self) -> tuple[str, ...]:
        """What was tried, and what came of it."""
        return tuple(self._sentence(taken) for taken in self._seen)

    def confidence(self) -> float:
        """That every mix is what it is said to be, of those that could be run."""
        return prod(self._certainty(taken) for taken in self._seen if self._numbers(taken))

    def _certainty(self, taken: frozenset[str]) -> float:
        if taken in {self._nothing, self._everything}:
            return 1.0
        return self._placed(taken)[1]

    def _judged(self, taken: frozenset[str]) -> tuple[Judgement, Judgement]:
        seen = self._seen[taken]
        old, new = self._seen[self._nothing], self._seen[self._everything]
        return self._judge(old, seen), self._judge(seen, new)

    def _placed(self, taken: frozenset[str]) -> tuple[Side, float]:
        """What a mix is like, and how sure that is."""
        old, new = self._judged(taken)
        both = prod(max(each.probability, 1 - each.probability) for each in (old, new))
        verdicts = (old.verdict, new.verdict)
        if verdicts in _SIDES:
            return _SIDES[verdicts], both
        if self._metric.binary:
            apart = verdicts == ("differ", "differ")
            return (self._between(self.share(taken)) if apart else Side.UNSURE), both
        side = self._by_share(taken, verdicts)
        return side, {Side.NEW: old.probability, Side.OLD: new.probability}.get(side, both)

    def _by_share(self, taken: frozenset[str], verdicts: tuple[str, str]) -> Side:
        """To show that a mix is the very same as one end takes many runs. Its share of this change is known sooner."""
        share, blur = self.share(taken), self.blur
        off = min(abs(share), abs(1 - share)) - _ERRORS * blur
        if off > _NEAR or (off > 0 and verdicts == ("differ", "differ")):
            return self._between(share)
        if blur <= _BLUR and verdicts[0] == "differ" and abs(share - 1) <= _NEAR:
            return Side.NEW
        if blur <= _BLUR and verdicts[1] == "differ" and abs(share) <= _NEAR:
            return Side.OLD
        return Side.UNSURE

    def _between(self, share: float) -> Side:
        return Side.BETWEEN if 0 < share < 1 else Side.ELSEWHERE

    @property
    def blur(self) -> float:
        """The standard error of a share: the noise of all that was run, for the size of this change."""
        lots = [lot for lot in map(self._numbers, self._seen) if lot]
        off = [value - median(lot) for lot in lots for value in lot]
        free = len(off) - len(lots)
        gap = abs(median(self._numbers(self._everything)) - median(self._numbers(self._nothing)))
        if free < 1 or not gap:
            return inf
        deviation = sqrt(sum(each * each for each in off) / free)
        # A few runs do not tell their own noise well (as Student's t has it).
        return deviation * (1 + _FEW / free) * sqrt(2 / min(map(len, lots))) / gap

    def _run(self, sets: Sequence[frozenset[str]]) -> None:
        chosen = [(taken, self._change.point(taken)) for taken in sets]
        there = [(taken, point) for taken, point in chosen if point is not None]
        for (taken, _), seen in zip(there, self._measure([p for _, p in there]), strict=True):
            self._seen[taken] = joined(self._seen.get(taken, Seen()), seen)

    def _numbers(self, taken: frozenset[str]) -> tuple[float, ...]:
        return samples(self._metric, self._seen.get(taken, Seen()))

    def _sentence(self, taken: frozenset[str]) -> str:
        numbers = self._numbers(taken)
        value = f"{median(numbers):.6g}" if numbers else self.why(taken)
        if taken in {self._nothing, self._everything}:
            return f"{'new' if taken else 'old'}: {value}"
        newer = " and ".join(name for name in self._change.moved if name in taken)
        older = " and ".join(name for name in self._change.moved if name not in taken)
        said = f"new {newer} with old {older}: {value}"
        return f"{said} ({self.side(taken)})" if numbers else said


_SIDES = {("same", "differ"): Side.OLD, ("differ", "same"): Side.NEW}


def joined(one: Seen, other: Seen) -> Seen:
    """What two lots of attempts at a point saw."""
    names = dict.fromkeys((*one.values, *other.values))
    return Seen(
        values={n: (*one.values.get(n, ()), *other.values.get(n, ())) for n in names},
        outcomes=(*one.outcomes, *other.outcomes),
        signatures=(*one.signatures, *other.signatures),
    )
