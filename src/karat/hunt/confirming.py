"""Confirming: the culprit and its parent, run again in turns, still differ. Pure, as attribution is."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from statistics import median

from karat.hunt.judging import Judgement
from karat.hunt.point import Point
from karat.hunt.readings import samples
from karat.hunt.report import Verdict
from karat.hunt.searching import Metric, Seen
from karat.hunt.swaps import joined

_MORE = 3
"""While it is unclear, as many runs again are added, so often at most."""


def confirm(  # noqa: PLR0913 - the hunt's interface
    old: Point,
    new: Point,
    metric: Metric,
    measure: Callable[[Sequence[Point]], Sequence[Seen]],
    judge: Callable[[Seen, Seen], Judgement],
    *,
    times: int,
    direction: float = 0.0,
) -> Verdict:
    """Whether two points differ, from fresh runs alone; `direction` (after − before), where it must be the same one.

    In turns, so that a machine that becomes slower meanwhile does so for both. Confirmed is None where it stays unclear.
    """
    befores, afters = Seen(), Seen()
    judgement = Judgement(verdict="unsure", probability=0.5)
    for _ in range(1 + _MORE):
        seen = measure([old, new] * max(times, 1))
        for before, after in zip(seen[::2], seen[1::2], strict=True):
            befores, afters = joined(befores, before), joined(afters, after)
        judgement = judge(befores, afters)
        numbers = samples(metric, befores), samples(metric, afters)
        # What gives no value does not give one the next time.
        if judgement.verdict != "unsure" or not all(numbers):
            break
    return _verdict(judgement, numbers, direction)


def _verdict(
    judgement: Judgement, numbers: tuple[Sequence[float], Sequence[float]], direction: float
) -> Verdict:
    before, after = numbers
    counts = f"{len(before)} and {len(after)} runs"
    if not before or not after:
        which = " and ".join(n for n, v in (("parent", before), ("culprit", after)) if not v)
        return Verdict(tried=(f"run again: no value of the {which}",))
    said = f"run again: {median(before):.6g} before, {median(after):.6g} after ({counts})"
    if judgement.verdict == "unsure":
        return Verdict(tried=(f"{said}: unclear",), confidence=judgement.probability)
    differ = judgement.verdict == "differ"
    turned = differ and direction * (median(after) - median(before)) < 0
    ending = "the other way round" if turned else "they differ" if differ else "they do not differ"
    return Verdict(
        confirmed=differ and not turned,
        tried=(f"{said}: {ending}",),
        confidence=judgement.probability if differ else 1 - judgement.probability,
    )
