"""Sweep: every point once, as a person would who has time.

Pure. The steps of a metric that has levels are the detector's (`karat.changes`); those of one that is good or bad come
from the model that knows of flakes, and so does where points that give values turn into points that fail.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from karat.changes.change import Analysis, Step
from karat.changes.detecting import analyse
from karat.changes.options import DetectOptions
from karat.changes.series import Observation, Outcome, Series
from karat.hunt.crashes import edge_spans, edges, lasting
from karat.hunt.flakes import flake_map
from karat.hunt.readings import Readings, readings, runs
from karat.hunt.searching import Decision, Metric, Seen, Span
from karat.hunt.settings import SearchSettings
from karat.hunt.spans import between, direction, missed, spans_of
from karat.hunt.wishes import Wish, allowance, asks


class Sweep:
    """Runs everything that is not missing."""

    def __init__(
        self,
        settings: SearchSettings,
        count: int,
        metrics: Sequence[Metric],
        *,
        missing: Collection[int] = (),
        names: Sequence[str] = (),
    ) -> None:
        self._settings = settings
        self._count = count
        self._metrics = tuple(metrics)
        self._missing = frozenset(missing)
        self._names = names or tuple(map(str, range(count)))

    def decide(self, seen: Mapping[int, Seen], in_flight: Mapping[int, int], room: int) -> Decision:
        """The next points in order; the answer when all have been run."""
        seen = {at: one for at, one in seen.items() if one.outcomes and at not in self._missing}
        done = {*self._missing, *seen, *in_flight}
        left = [at for at in range(self._count) if at not in done]
        allowed = allowance(self._settings.max_runs, seen, in_flight, room)
        wanted = asks([Wish(0, at, "every point") for at in left[: allowed + 1]], allowed)
        rest = left[len(wanted) : len(wanted) + 4]
        stopped = bool(left) and not wanted and not in_flight and room > 0
        decision = Decision(asks=wanted, likely_next=tuple(rest), expected_left=len(left))
        if (left and not stopped) or in_flight:
            return decision
        return self._answer(seen, len(left))

    def _answer(self, seen: Mapping[int, Seen], left: int) -> Decision:
        spans: list[Span] = []
        analyses: list[Analysis] = []
        flakes: list[float] = []
        tested, dead = set(range(self._count)), set(self._missing)
        for number, metric in enumerate(self._metrics):
            read = readings(metric, seen)
            holes = read.dead | read.again | self._missing
            tested, dead = tested & read.values.keys(), dead | holes
            if metric.binary:
                found = flake_map(read.values, self._count) if read.values else None
                spans += spans_of(metric, found, read.values, sorted(holes)) if found else ()
                flakes += [found.flakes] if found and found.flakes is not None else []
            else:
                analysis = self._analyse(metric, seen)
                analyses.append(analysis)
                spans += [_span(metric, step, holes) for step in analysis.steps]
            # A run that fails gives no metric its value: once is enough.
            spans += () if number else self._failures(metric, read)
        return Decision(
            asks=(),
            expected_left=left,
            spans=tuple(sorted(spans, key=lambda span: (span.good, span.bad))),
            analyses=tuple(analyses),
            flake_rate=max(flakes, default=None),
            missed=missed(self._count, tested, dead, "a larger max_runs"),
            notes=self._notes(seen, left),
        )

    def _failures(self, metric: Metric, read: Readings) -> tuple[Span, ...]:
        """Where failures begin and end, from one run of each point: what flakes explain as well is none."""
        failed = read.failed | read.again
        if not failed:
            return ()
        found = edges(read.values, failed, self._count)
        sure = lasting(found, read.values, failed, self._count)
        return edge_spans(metric, sure, read.values, (read.dead - failed) | self._missing)

    def _analyse(self, metric: Metric, seen: Mapping[int, Seen]) -> Analysis:
        smallest = 0.0 if metric.better == "equal" else self._settings.smallest
        observations = tuple(
            _observation(metric, at, name, seen.get(at)) for at, name in enumerate(self._names)
        )
        series = Series(metric=metric.name, better=metric.better, observations=observations)
        return analyse(series, DetectOptions(smallest=smallest))

    def _notes(self, seen: Mapping[int, Seen], left: int) -> tuple[str, ...]:
        if not left:
            return ()
        return (f"stopped at {runs(seen)} runs (max_runs): {left} points were not run",)


def _observation(metric: Metric, index: int, name: str, at: Seen | None) -> Observation:
    """One point as the detector sees it."""
    if at is None:
        return Observation(label=name, outcome=Outcome.MISSING)
    values = readings(metric, {index: at}).values.get(index, ())
    if values:
        return Observation(label=name, values=values)
    gravest = next((o for o in at.outcomes if o is not Outcome.OK), Outcome.MISSING)
    signature = next((text for text in at.signatures if text), "")
    return Observation(label=name, outcome=gravest, signature=signature)


def _span(metric: Metric, step: Step, dead: frozenset[int]) -> Span:
    return Span(
        metric=metric.name,
        good=step.last_good,
        bad=step.first_bad,
        before=step.before.value,
        after=step.after.value,
        confidence=step.confidence,
        kind=direction(metric.better, step.absolute),
        between=between(step.last_good, step.first_bad, dead),
    )
