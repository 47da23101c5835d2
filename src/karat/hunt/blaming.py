"""Blaming: whose change it is, by swapping parts; whether it holds, by running both sides again."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from msgspec import structs

from karat.changes.series import Outcome
from karat.hunt.attribution import attribute
from karat.hunt.confirming import confirm
from karat.hunt.journal_rows import Found
from karat.hunt.judging import Judgement, judge
from karat.hunt.kit import Kit, OpenStage
from karat.hunt.measuring import Measuring
from karat.hunt.point import Point
from karat.hunt.searching import Metric, Seen, Span
from karat.hunt.zooming import Site

Measure = Callable[[Sequence[Point]], Sequence[Seen]]


class Blame:
    """What swapping and confirming say of one place of change. What the journal knows already is not run again."""

    def __init__(self, kit: Kit, measuring: Measuring, stage: OpenStage, site: Site) -> None:
        self._kit, self._measuring, self._stage = kit, measuring, stage
        self._old, self._new = stage.points[site.good], stage.points[site.bad]
        self._name = site.numbers[0]

    def swapped(self, found: Found, span: Span) -> Found:
        """Which part made it, where parts can be swapped."""
        if found.swapped or not self._kit.settings.search.attribution:
            return found
        timeline = self._stage.timeline
        if timeline.mixed(self._old, self._new, frozenset()) is None:
            return structs.replace(found, swapped=True)
        measure = self._measure("swap", "swapping parts", span)
        metric = self._metric(span)
        verdict = attribute(
            timeline, self._old, self._new, metric, measure, lambda a, b: self._judged(a, b, metric)
        )
        towards = ""
        if verdict.part and not verdict.interaction:
            mixed = timeline.mixed(self._old, self._new, frozenset({verdict.part}))
            towards = mixed.id if mixed is not None else ""
        return structs.replace(found, verdict=verdict, swapped=True, towards=towards)

    def confirmed(self, found: Found, span: Span) -> Found:
        """Whether the culprit and its parent, run again, still differ."""
        times = self._kit.settings.search.confirmations
        if found.confirmed or not times:
            return found
        measure = self._measure("confirm", "confirming", span)
        metric = self._metric(span)
        verdict = confirm(
            self._old,
            self._new,
            metric,
            measure,
            lambda a, b: self._judged(a, b, metric),
            times=times,
            direction=0.0 if _without_level(span) else _direction(span),
        )
        merged = structs.replace(
            found.verdict, confirmed=verdict.confirmed, confidence=verdict.confidence,
            tried=(*found.verdict.tried, *verdict.tried),
        )  # fmt: skip
        return structs.replace(found, verdict=merged, confirmed=True)

    def _metric(self, span: Span) -> Metric:
        if _without_level(span):
            return FAILED
        return next(metric for metric in self._kit.metrics if metric.name == span.metric)

    def _judged(self, old: Seen, new: Seen, metric: Metric) -> Judgement:
        search = self._kit.settings.search
        return judge(old, new, metric, smallest=search.smallest, confidence=search.confidence)

    def _measure(self, purpose: str, why: str, span: Span) -> Measure:
        measure = self._measuring.measure(self._stage, f"{purpose} {self._name}", why)
        if not _without_level(span):
            return measure
        return lambda points: [as_failures(seen) for seen in measure(points)]


FAILED = Metric(name="fails", better="lower", binary=True)


def as_failures(seen: Seen) -> Seen:
    """A point by whether it failed: all that two sides of a crash have in common."""
    evidence = [o for o in seen.outcomes if o in (Outcome.OK, Outcome.CRASH, Outcome.HANG)]
    failed = tuple(float(outcome is not Outcome.OK) for outcome in evidence)
    return structs.replace(seen, values={FAILED.name: failed} if failed else {})


def _without_level(span: Span) -> bool:
    """Whether one side has no values: a crash nobody asked for."""
    return span.before is None or span.after is None


def _direction(span: Span) -> float:
    return (span.after or 0.0) - (span.before or 0.0)
