"""Attribution: which repository made a change, and whether the change holds when both sides are run again. Pure.

By swapping: the old point with one part of the new, and the other way round. Points go to `measure`, which runs each point
afresh for every time that it is named, and what comes back goes to `judge`. A pair that does not build, or that stays unclear
after several runs, is said to be so; nothing is guessed from it.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from enum import StrEnum
from math import inf, prod, sqrt
from statistics import median

from msgspec import structs

from karat.hunts.model import Metric, Observed, Point, Verdict
from karat.hunts.search.inference import PairJudgement
from karat.hunts.search.observations import samples
from karat.hunts.timelines.timeline import Timeline

_NEAR, _BLUR = 0.25, 0.1  # A share this near to none or all is that, if it is known this well.
_FEW = 4  # Of more parts, those that make the change together are found first, by halves.
_ADDS_UP = 0.25  # Shares of parts that act on their own add up to the whole, give or take this.

Mix = Callable[[frozenset[str]], Point | None]
Measure = Callable[[Sequence[Point]], Sequence[Observed]]
Judge = Callable[[Observed, Observed], PairJudgement]


class Likeness(StrEnum):
    """What a mixed point is like."""

    OLD = "as old"
    NEW = "as new"
    BETWEEN = "between"
    ELSEWHERE = "like neither"
    BROKEN = "cannot be run"
    UNSURE = "unclear"


_SIDES = {("same", "differ"): Likeness.OLD, ("differ", "same"): Likeness.NEW}


class Swaps:
    """Every mix that was tried; `point` makes the old point with some parts of the new one."""

    def __init__(self, moved: tuple[str, ...], point: Mix, metric: Metric, measure: Measure, judge: Judge) -> None:
        self.moved, self._point, self._metric = moved, point, metric
        self._measure, self._judge = measure, judge
        self._seen: dict[frozenset[str], Observed] = {}
        self._nothing, self._everything = frozenset[str](), frozenset(moved)

    def of(self, moved: tuple[str, ...]) -> Swaps:
        """The same with fewer parts, which make the change together; the others stay old."""
        fewer = Swaps(moved, self._point, self._metric, self._measure, self._judge)
        fewer._seen = {taken: seen for taken, seen in self._seen.items() if taken <= set(moved)}
        return fewer

    @property
    def whole(self) -> Likeness:
        if not self._numbers(self._nothing) or not self._numbers(self._everything):
            return Likeness.BROKEN
        verdict = self._judge(self._seen[self._nothing], self._seen[self._everything]).verdict
        return {"differ": Likeness.NEW, "same": Likeness.OLD}.get(verdict, Likeness.UNSURE)

    def ask(self, wanted: Sequence[frozenset[str]]) -> None:
        """Run mixes, and again while it is unclear what they are like."""
        asked = [taken for taken in dict.fromkeys(wanted) if taken not in self._seen]
        if not asked:
            return
        # So often at most; the two ends are run beside what is unclear, since machines drift.
        for number in range(12):
            # One run of each proves little where a run may be unlucky.
            unclear = [t for t in asked if number < 2 or self.side(t) is Likeness.UNSURE]
            unclear = [t for t in unclear if number == 0 or self._numbers(t)]
            if number and self.whole in {Likeness.OLD, Likeness.BROKEN}:
                return
            if not unclear and self.whole is Likeness.NEW:
                return
            # A machine that drifts does not make a test fail.
            known = self._metric.binary and self.whole is Likeness.NEW
            wanted = unclear if known and unclear else [self._nothing, *unclear, self._everything]
            mixes = ((taken, self._point(taken)) for taken in wanted)
            there = [(taken, point) for taken, point in mixes if point is not None]
            for (taken, _), seen in zip(there, self._measure([point for _, point in there]), strict=True):
                self._seen[taken] = combined(self._seen.get(taken, Observed()), seen)

    def side(self, taken: Collection[str]) -> Likeness:
        chosen = frozenset(taken)
        if not self._numbers(chosen):
            return Likeness.BROKEN
        here, old, new = ({s for s in self._seen[t].signatures if s} for t in (chosen, self._nothing, self._everything))
        # Another error than the one at either end: parts that do not fit together, as a rule.
        other = here and (old or new) and not here & (old | new)
        return Likeness.ELSEWHERE if other else self._classify(chosen)[0]

    def share(self, taken: Collection[str]) -> float:
        """How much of the way from the old level to the new one a mix goes."""
        old, here, new = (median(self._numbers(each)) for each in (self._nothing, frozenset(taken), self._everything))
        return (here - old) / (new - old) if new != old else 0.0

    def why(self, taken: Collection[str]) -> str:
        seen = self._seen.get(frozenset(taken))
        if seen is None:
            return "not tried"
        signature = next((text for text in seen.signatures if text), "")
        return f"{self.side(taken)}{f': {signature}' if signature else ''}"

    def sentences(self) -> tuple[str, ...]:
        said = []
        for taken in self._seen:
            numbers = self._numbers(taken)
            value = f"{median(numbers):.6g}" if numbers else self.why(taken)
            if taken in {self._nothing, self._everything}:
                said.append(f"{'new' if taken else 'old'}: {value}")
                continue
            newer = " and ".join(name for name in self.moved if name in taken)
            older = " and ".join(name for name in self.moved if name not in taken)
            said.append(f"new {newer} with old {older}: {value}{f' ({self.side(taken)})' if numbers else ''}")
        return tuple(said)

    def confidence(self) -> float:
        """That every mix is what it is said to be, of those that could be run."""
        mixes = [taken for taken in self._seen if taken not in {self._nothing, self._everything}]
        if not mixes:
            return self._judge(self._seen[self._nothing], self._seen[self._everything]).probability
        return prod(self._classify(taken)[1] for taken in mixes if self._numbers(taken))

    def _classify(self, taken: frozenset[str]) -> tuple[Likeness, float]:
        """What a mix is like, and how sure that is."""
        seen = self._seen[taken]
        old = self._judge(self._seen[self._nothing], seen)
        new = self._judge(seen, self._seen[self._everything])
        both = prod(max(each.probability, 1 - each.probability) for each in (old, new))
        verdicts = (old.verdict, new.verdict)
        if verdicts in _SIDES:
            return _SIDES[verdicts], both
        if self.whole is Likeness.BROKEN:
            return Likeness.UNSURE, both
        share, apart = self.share(taken), verdicts == ("differ", "differ")
        between = Likeness.BETWEEN if 0 < share < 1 else Likeness.ELSEWHERE
        if self._metric.binary:
            # What never did anything else than one end, and surely differs from the other, is like that end.
            for likeness, end, other in ((Likeness.OLD, self._nothing, new), (Likeness.NEW, self._everything, old)):
                if other.verdict == "differ" and len({*self._numbers(taken), *self._numbers(end)}) == 1:
                    return likeness, other.probability
            return (between if apart else Likeness.UNSURE), both
        # To show that a mix is the very same as one end takes many runs. Its share of this change is known sooner.
        blur = self.blur
        # By so many standard errors it must be off none and all to be neither.
        off = min(abs(share), abs(1 - share)) - 2.5 * blur
        if off > _NEAR or (off > 0 and apart):
            return between, both
        if blur <= _BLUR and old.verdict == "differ" and abs(share - 1) <= _NEAR:
            return Likeness.NEW, old.probability
        if blur <= _BLUR and new.verdict == "differ" and abs(share) <= _NEAR:
            return Likeness.OLD, new.probability
        return Likeness.UNSURE, both

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
        return deviation * (1 + 3 / free) * sqrt(2 / min(map(len, lots))) / gap

    def _numbers(self, taken: frozenset[str]) -> tuple[float, ...]:
        return samples(self._metric, self._seen.get(taken, Observed()))


def combined(one: Observed, other: Observed) -> Observed:
    names = dict.fromkeys((*one.values, *other.values))
    values = {n: (*one.values.get(n, ()), *other.values.get(n, ())) for n in names}
    outcomes, signatures = (*one.outcomes, *other.outcomes), (*one.signatures, *other.signatures)
    return Observed(values=values, outcomes=outcomes, signatures=signatures)


def attribute(timeline: Timeline, old: Point, new: Point, metric: Metric, measure: Measure, judge: Judge) -> Verdict:
    """Which part made the change between two points; only parts that moved are swapped."""
    moved = tuple(name for name, value in new.parts.items() if old.parts.get(name, value) != value)
    if not moved or timeline.mixed(old, new, frozenset(moved[:1])) is None:
        return Verdict()
    if len(moved) == 1:
        return Verdict(part=moved[0], parts=moved, message=f"only {moved[0]} moved", confidence=1.0)
    swaps = Swaps(moved, lambda taken: timeline.mixed(old, new, taken), metric, measure, judge)
    others = ""
    if len(moved) > _FEW:
        swaps.ask([frozenset(moved)])
        if swaps.whole is Likeness.NEW:
            found = _fewest(swaps, moved)
            swaps.ask([rest] if (rest := frozenset(moved) - found) else [])
            others = ", and so do others without it" if rest and swaps.side(rest) is Likeness.NEW else ""
            moved = tuple(name for name in moved if name in found)
            swaps = swaps.of(moved)
    if len(moved) == 1:
        said, sure = f"{moved[0]} alone causes it{others}", swaps.confidence()
        return Verdict(part=moved[0], parts=moved, message=said, tried=swaps.sentences(), confidence=sure)
    singles = [frozenset({name}) for name in moved]
    # Of two parts, new A with old B is old B with new A.
    without = [frozenset(moved) - one for one in singles]
    swaps.ask([*singles, *(rest for rest in without if rest not in singles)])
    if swaps.whole is not Likeness.NEW:
        said = {
            Likeness.OLD: "the two points do not differ when they are run again",
            Likeness.BROKEN: "the two points could not be run again",
        }.get(swaps.whole, "running the two points again did not show whether they differ")
        return Verdict(message=said, tried=swaps.sentences())
    # What the swaps come to; without a confidence where that is not the whole answer.
    alone = {name: swaps.side({name}) for name in moved}
    enough = tuple(name for name in moved if alone[name] is Likeness.NEW)
    partly = tuple(name for name in moved if alone[name] is Likeness.BETWEEN)
    unknown = tuple(name for name in moved if alone[name] not in {Likeness.NEW, Likeness.OLD, Likeness.BETWEEN})
    if enough:
        verdict = _enough(swaps, enough, moved)
    elif partly:
        verdict = _shares(swaps, partly, unknown)
    elif unknown:
        verdict = _by_leaving_out(swaps, moved, unknown)
    else:
        verdict = _together(swaps, moved)
    # Asked last: deciding may have taken more runs.
    return structs.replace(verdict, message=f"{verdict.message}{others}", tried=swaps.sentences())


def _enough(swaps: Swaps, enough: tuple[str, ...], moved: tuple[str, ...]) -> Verdict:
    """Parts that make all of it, each alone."""
    rest, part = frozenset(moved) - {enough[0]}, ""
    said = f"{enough[0]} alone causes it"
    if len(enough) > 1:
        said = f"{_enumerate(enough)} each cause it alone"
    elif swaps.side(rest) is Likeness.NEW and len(rest) > 1:
        said += f", and so do {_enumerate(sorted(rest))} together"
    else:
        part = enough[0]
        if swaps.side(rest) is not Likeness.OLD:
            said += f"; what the rest does without it is unknown ({swaps.why(rest)})"
    return Verdict(part=part, parts=enough, message=said, confidence=swaps.confidence())


def _shares(swaps: Swaps, partly: tuple[str, ...], unknown: tuple[str, ...]) -> Verdict:
    """Parts that make some of it each; where they act on their own, that adds up to the whole, however little each is."""
    if unknown:
        shares = {name: swaps.share({name}) for name in partly}
        why = "; ".join(f"{name}: {swaps.why({name})}" for name in unknown)
        said = f"{_percentages(shares)} account for part of it alone; the rest is unknown ({why})"
        return Verdict(parts=partly, shares=shares, message=said)
    every = {name: swaps.share({name}) for name in swaps.moved}
    # A tenth is told, though its part by itself makes no difference that is worth finding.
    shares = {n: share for n, share in every.items() if n in partly or share >= 0.1}
    parts, listed = tuple(shares), _percentages(shares)
    # By two standard errors they must be off the whole to be said not to add up.
    off, blur = abs(sum(every.values()) - 1), 2 * swaps.blur * sqrt(len(every))
    if off - blur > _ADDS_UP:
        said = f"it takes them together: alone they account for {listed}"
        return Verdict(parts=parts, shares=shares, message=said, interaction=True, confidence=swaps.confidence())
    if off > _ADDS_UP:
        said = f"alone they account for {listed}; whether the rest takes them together is unclear"
        return Verdict(parts=parts, shares=shares, message=said)
    part = parts[0] if len(parts) == 1 and shares[parts[0]] >= 0.75 else ""
    return Verdict(part=part, parts=parts, shares=shares, message=f"made by {listed}", confidence=swaps.confidence())


def _percentages(shares: Mapping[str, float]) -> str:
    return ", ".join(f"{name} {share:.0%}" for name, share in shares.items())


def _by_leaving_out(swaps: Swaps, moved: tuple[str, ...], unknown: tuple[str, ...]) -> Verdict:
    """Where a part cannot be tried alone: what happens without it."""
    without = {name: swaps.side(frozenset(moved) - {name}) for name in moved}
    needed = tuple(name for name in moved if without[name] is Likeness.OLD)
    others = tuple(name for name in moved if name not in needed)
    why = "; ".join(f"new {name} alone: {swaps.why({name})}" for name in unknown)
    beside = others if len(needed) == 1 else ()
    if len(needed) == 1 and len(moved) > 2 and all(without[n] is Likeness.NEW for n in others):
        said = f"without {needed[0]} it disappears, without any other it stays ({why})"
        return Verdict(part=needed[0], parts=needed, beside=beside, message=said, confidence=swaps.confidence())
    if needed:
        said = f"it takes {_enumerate(needed)}; whether that is enough is unknown ({why})"
        return Verdict(parts=needed, beside=beside, message=said)
    return Verdict(parts=unknown, message=f"which part caused it is unclear ({why})")


def _together(swaps: Swaps, moved: tuple[str, ...]) -> Verdict:
    """None alone makes any of it: the fewest that make it together."""
    found = frozenset(moved)
    if len(moved) > 2:
        needed = frozenset(n for n in moved if swaps.side(frozenset(moved) - {n}) is not Likeness.NEW)
        swaps.ask([needed] if 1 < len(needed) < len(moved) else [])
        known = len(needed) > 1 and swaps.side(needed) is Likeness.NEW
        found = needed if known else _fewest(swaps, moved)
    parts = tuple(name for name in moved if name in found)
    said = f"it takes {_enumerate(parts)} together: none alone causes it"
    return Verdict(parts=parts, message=said, interaction=True, confidence=swaps.confidence())


def _fewest(swaps: Swaps, moved: tuple[str, ...]) -> frozenset[str]:
    """A smallest set that makes it, by leaving out halves, then quarters, and so on."""
    current, pieces = list(moved), 2
    while pieces <= len(current):
        size = -(-len(current) // pieces)
        groups = [current[i : i + size] for i in range(0, len(current), size)]
        rests = [frozenset(current) - set(group) for group in groups]
        swaps.ask([rest for rest in rests if rest])
        left = next((rest for rest in rests if rest and swaps.side(rest) is Likeness.NEW), None)
        if left is not None:
            current, pieces = [name for name in current if name in left], max(pieces - 1, 2)
        elif size == 1:
            break
        else:
            pieces = min(2 * pieces, len(current))
    return frozenset(current)


def _enumerate(names: Sequence[str]) -> str:
    return " and ".join(filter(None, (", ".join(names[:-1]), names[-1])))


def confirm(  # noqa: PLR0913 - the hunt's interface
    old: Point,
    new: Point,
    metric: Metric,
    measure: Measure,
    judge: Judge,
    *,
    times: int,
    direction: float = 0.0,
    rounds: int = 4,
) -> Verdict:
    """Whether two points differ, from fresh runs alone; `direction` (after − before), where it must be the same one.

    In turns, so that a machine that becomes slower meanwhile does so for both. Confirmed is None where it stays unclear.
    """
    befores, afters = Observed(), Observed()
    # While it is unclear, as many runs again are added.
    for _ in range(rounds):
        seen = measure([old, new] * max(times, 1))
        for one, other in zip(seen[::2], seen[1::2], strict=True):
            befores, afters = combined(befores, one), combined(afters, other)
        judgement = judge(befores, afters)
        before, after = samples(metric, befores), samples(metric, afters)
        # What gives no value does not give one the next time.
        if judgement.verdict != "unsure" or not before or not after:
            break
    counts = f"{len(before)} and {len(after)} runs"
    if not before or not after:
        which = " and ".join(n for n, v in (("parent", before), ("culprit", after)) if not v)
        return Verdict(tried=(f"run again: no value for the {which}",))
    said = f"run again: {median(before):.6g} before, {median(after):.6g} after ({counts})"
    if judgement.verdict == "unsure":
        return Verdict(tried=(f"{said}: unclear",), confidence=judgement.probability)
    differ = judgement.verdict == "differ"
    turned = differ and direction * (median(after) - median(before)) < 0
    ending = "the other way round" if turned else "they differ" if differ else "they do not differ"
    sure = judgement.probability if differ else 1 - judgement.probability
    return Verdict(confirmed=differ and not turned, tried=(f"{said}: {ending}",), confidence=sure)
