"""Strategies: adaptive, sweep and bisect, opened by what hunt.toml says. Pure.

Adaptive maps all changes with as few runs as possible: a coarse grid first; then the probability of a change between each two
tested points says where to split and what to run again, until nothing is in doubt. Each metric has a map of its own; a run
serves all of them. Sweep runs every point once. What chooses its points sees only those that are there: those that are missing
from the start are taken out before, and put back into its answer.
"""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from functools import partial
from itertools import accumulate, chain, pairwise
from statistics import fmean
from typing import NamedTuple

from msgspec import structs

from karat.changepoints.detector.detect import detect
from karat.changepoints.series import DetectOptions, Observation, Series
from karat.findings import UsageError, suggest
from karat.hunts.model import Ask, Decision, Metric, Missed, Noise, Observed, Point, Runs, Seen, Span, Strategy
from karat.hunts.search import requests as wishes, spans as moves
from karat.hunts.search.inference import EXPECTED, flake_map, level_map, middle
from karat.hunts.search.observations import count_runs, read_metric
from karat.hunts.settings import SearchSettings
from karat.report.words import count

Levels = Mapping[str, tuple[float, float]]
_TIERS = (1.0, 1.2, wishes.SPECULATION)  # Ranks from which on a request is no part of the grid, not sure, a guess.


class MetricPlan(NamedTuple):
    """What one metric wants, and what is known of it."""

    name: str
    requests: tuple[wishes.RunRequest, ...]
    spans: tuple[Span, ...] = ()
    flakes: float | None = None
    left: int = 0  # Runs still to come, as far as can be said.
    note: str = ""
    noise: Noise | None = None


Effort = tuple[SearchSettings, int, Sequence[float]]
"""What a search may cost; how many points there are, and their weights, 1 on average: how likely a change came with each.
Without weights all are alike."""


class Adaptive:
    def __init__(self, effort: Effort, metrics: Sequence[Metric], *, zoom: bool = False, known: bool = False) -> None:
        settings, count, self._weights = effort
        self._settings, self._count, self._metrics = settings, count, tuple(metrics)
        # What is zoomed into is one change between two ends that differ: nothing is gained by a grid. That of hunt.toml
        # counts the points of the first stage, and says nothing of these.
        # Of a dip that is not longer than the points are apart, the share that is met.
        wished = int(1.5 * settings.min_dip / settings.min_dip_sure) if settings.min_dip else settings.grid
        self._grid = count if zoom else wishes.grid_width(count, wished)
        self._known = known or zoom  # Whether a coarser stage saw a change here.
        self._rule_out = "--strategy sweep" if zoom else "--min-dip 1, or --strategy sweep"

    def decide(self, seen: Seen, in_flight: Runs, room: int) -> Decision:
        """What to run next for all metrics together, and what is known of them."""
        found = [self._plan(k, metric, seen, in_flight, room) for k, metric in enumerate(self._metrics)]
        plans = [plan for plan, _ in found]
        # Whether every run counts, so that none should be a guess.
        thrifty = self._settings.max_runs or self._settings.max_cost
        done = count_runs(seen) + sum(in_flight.values())
        waiting = [plan for plan in plans if plan.requests or (plan.left and in_flight)]
        allowed = min(max(room, 0), self._left(plans, done, waiting=len(waiting)))
        # Of all metrics: what is sure first, then what is in doubt, then guesses; in each the metrics take turns.
        ordered = []
        for number, plan in enumerate(plans):
            places = Counter[int]()
            for request in sorted(plan.requests):
                tier = bisect_right(_TIERS, request.rank)
                ordered.append((tier, places[tier], (number - done) % len(plans), request))
                places[tier] += 1
        requests = [request for *_, request in sorted(ordered)]
        affordable = [one for one in requests if not thrifty or one.rank < wishes.SPECULATION]
        wanted = wishes.choose(affordable, allowed)
        following = wishes.choose(affordable, len(wanted) + 4)[len(wanted) :]
        if not thrifty and any(one.rank < 1 for one in requests):
            # For slots that would be idle. Later there is no use in them: in what is flat, every twentieth point is off by
            # chance, and asks for more.
            wanted = wishes.choose(chain(affordable, wishes.spare_requests(self._count, {*seen, *in_flight})), allowed)
        spans = tuple(span for plan in plans for span in plan.spans)
        notes, unsettled = tuple(dict.fromkeys(plan.note for plan in plans if plan.note)), tuple[str, ...]()
        if not requests and not in_flight:
            notes += moves.wide_span_notes(spans)
        elif not wanted and not in_flight and room > 0:
            unsettled = tuple(plan.name for plan in waiting)
            share = f"its share of a sweep with {count(self._settings.runs_per_point, 'run')} per point"
            more = "too noisy, or too many changes; runs_per_point in [search] allows more"
            notes += tuple(f"{name} is not settled after {done} runs, {share}: {more}" for name in unsettled)
        return Decision(
            asks=wanted,
            likely_next=tuple(ask.index for ask in following),
            expected_left=max((plan.left for plan in plans), default=0),
            spans=spans,
            flake_rate=max((plan.flakes for plan in plans if plan.flakes is not None), default=None),
            missed=max((missed for _, missed in found), key=lambda m: m.longest_dip, default=None),
            noise=tuple(plan.noise for plan in plans if plan.noise is not None),
            notes=notes,
            unsettled=unsettled,
        )

    def _left(self, plans: Sequence[MetricPlan], done: int, *, waiting: int) -> int:
        """Runs that may start, after so many, while so many metrics are waited for.

        All metrics together have what a sweep of the same precision takes, less what confirms the changes. Once some are
        settled, the others have their share, and no more: they do not hold up those.
        """
        most = wishes.most_runs(self._settings, self._count)
        share = most * (waiting + 1) // (len(plans) + 1) if waiting else most
        changes = {(span.good, span.bad) for plan in plans for span in plan.spans}
        kept = min(2 * self._settings.confirmations * len(changes), most // 2)
        return max(min(share, most - kept) - done, 0)

    def _plan(self, number: int, metric: Metric, seen: Seen, in_flight: Runs, room: int) -> tuple[MetricPlan, Missed]:
        read = read_metric(metric, seen)
        failing = moves.surely_failing(read.again, read.values, read.failed)
        failed = read.failed | failing
        dead, again = sorted(read.dead | failing), read.again - failing
        requests = wishes.grid_requests(self._count, self._grid, {*read.values, *in_flight}, dead, again)
        grid_left = len(requests)
        requests += [wishes.RunRequest(1, at, "again: it failed") for at in sorted(again - in_flight.keys())]
        spans: tuple[Span, ...] = ()
        left, flakes, noise, note = 0, None, None, ""
        if len(read.values) > 1:
            # Where equal is better, there is no change too small to matter.
            smallest = 0.0 if metric.better == "equal" else self._settings.smallest
            values, count, sure = read.values, self._count, self._settings.confidence
            weights = self._weights
            levels = partial(level_map, values, count, under=read.under, weights=weights)
            flaky = partial(flake_map, values, count, under=read.under, weights=weights)
            known = flaky() if metric.binary else levels(smallest=smallest)
            runs = {at: len(numbers) for at, numbers in values.items()}
            # Of what a coarser stage saw, the place is wanted as well as it can be had.
            pinned = known.spread if self._known else known.pinned
            if smallest and pinned > smallest:
                builds = pinned > known.spread
                off = f"about {100 * (known.builds if builds else known.spread):.2g}% (one standard deviation)"
                which = f"changes smaller than {100 * pinned:.2g}%" if builds else "smaller changes"
                who, more = ("builds", " (rebuild = 3 finds them)") if builds else ("runs", "")
                note = f"{metric.name}: {who} of one level differ by {off}: {which} were not looked for{more}"
                known = levels(smallest=pinned)
            state = wishes.SearchState(
                map=known, runs=runs, dead=dead, pending=in_flight, confidence=sure, weights=weights
            )
            requests += wishes.split_requests(state, 1 + 2 * room)
            spans = moves.spans_of(metric, state.map, read.values, dead, sure, known=self._known)
            if not metric.binary and not self._known:
                # What is surely there, and surely smaller than what is wanted, is nothing to report.
                least = 0.9 * smallest
                spans = tuple(s for s in spans if abs((s.after or 0) - (s.before or 0)) >= least * abs(s.before or 0))
            left, flakes, noise = wishes.expected_left(state), known.flakes, known.noise(metric.name)
        if not number and failed:
            found = moves.edges(read.values, failed, self._count)
            requests += moves.edge_requests(found, dead, in_flight)
            tried = {*read.values, *dead, *again, *in_flight}
            requests += moves.beside_failures(read.values, failed, range(self._count), tried)
            spans = (*spans, *moves.edge_spans(metric, found, read.values, dead))
        ordered = tuple(sorted(spans, key=lambda span: (span.good, span.bad)))
        plan = MetricPlan(metric.name, tuple(requests), ordered, flakes, grid_left + left, note, noise)
        return plan, moves.missed_dips(self._count, read.values, dead, self._rule_out, self._settings.min_dip)


class Sweep:
    """Runs every point once."""

    def __init__(self, effort: Effort, metrics: Sequence[Metric]) -> None:
        self._settings, self._count, _ = effort
        self._metrics = tuple(metrics)

    def decide(self, seen: Seen, in_flight: Runs, room: int) -> Decision:
        """The next points in order; the answer when all have been run, or no more may be."""
        left = [at for at in range(self._count) if at not in seen and at not in in_flight]
        if (left and room > 0) or in_flight:
            wanted = tuple(Ask(index=at, why="every point") for at in left[: max(room, 0)])
            rest = tuple(left[len(wanted) : len(wanted) + 4])
            return Decision(asks=wanted, likely_next=rest, expected_left=len(left))
        spans: list[Span] = []
        flakes: list[float] = []
        tested, dead = set(range(self._count)), set[int]()
        for number, metric in enumerate(self._metrics):
            read = read_metric(metric, seen)
            holes, sure = read.dead | read.again, self._settings.confidence
            tested, dead = tested & read.values.keys(), dead | holes
            if metric.binary:
                found = flake_map(read.values, self._count, under=read.under) if read.values else None
                spans += moves.spans_of(metric, found, read.values, sorted(holes), sure) if found else ()
                flakes += [found.flakes] if found and found.flakes is not None else []
            else:
                smallest = 0.0 if metric.better == "equal" else self._settings.smallest
                known = [*read.values]
                observations = tuple(Observation(label=str(at), values=read.values[at]) for at in known)
                series = Series(metric=metric.name, better=metric.better, observations=observations)
                for step in detect(series, DetectOptions(smallest=smallest)).steps:
                    sides = known[step.last_good], known[step.first_bad]
                    levels = step.before.value, step.after.value
                    span = moves.span_of(metric, sides, levels, step.confidence, holes)
                    spans.append(structs.replace(span, sure=step.confidence >= sure))
            failed = read.failed | read.again
            if failed and not number:  # a run that fails gives no metric its value: once is enough
                # Where failures begin and end, from one run of each point: what flakes explain as well is none.
                ends = moves.edges(read.values, failed, self._count)
                likely = moves.likelier_than_flakes(ends, read.values, failed, self._count)
                spans += moves.edge_spans(metric, likely, read.values, read.dead - failed)
        ordered = tuple(sorted(spans, key=lambda span: (span.good, span.bad)))
        missed, rate = moves.missed_dips(self._count, tested, dead, "a larger budget"), max(flakes, default=None)
        return Decision(asks=(), expected_left=len(left), spans=ordered, flake_rate=rate, missed=missed)


class Bisect:
    """Between a known good and a known bad point: `order` is -1 where good is the newer one, and the change a repair.

    The search is the one that zooms in. A metric with a threshold is good or bad by it.
    """

    def __init__(self, effort: Effort, metrics: Sequence[Metric], order: int) -> None:
        self._metrics, self._order = metrics, order
        told = [structs.replace(m, binary=True) if m.threshold is not None else m for m in metrics]
        self._inner = Adaptive(effort, told, zoom=True)

    def decide(self, seen: Seen, in_flight: Runs, room: int) -> Decision:
        decision = self._inner.decide({at: self._told(one) for at, one in seen.items()}, in_flight, room)
        spans, notes = [], list(decision.notes)
        for metric in self._metrics:
            plain = read_metric(metric, seen).values
            wrong = "improvement" if self._order > 0 else "regression"
            found, judged = [s for s in decision.spans if s.metric == metric.name], self._judges(metric)
            if found and judged and all(span.kind == wrong for span in found):
                said = "the good end is bad, and the bad end is good: swap good and bad in [search]"
                notes, found = [*notes, f"{metric.name}: {said}"], []
            elif not (found or decision.asks or in_flight):
                notes.append(self._nothing(metric, plain))
            if judged and not metric.binary:
                found = [structs.replace(span, **_levels(span, plain)) for span in found]
            spans += found
        return structs.replace(decision, spans=tuple(spans), notes=tuple(dict.fromkeys(notes)))

    @staticmethod
    def _judges(metric: Metric) -> bool:
        return metric.binary or metric.threshold is not None

    def _told(self, one: Observed) -> Observed:
        """What was observed, by the thresholds."""
        values = dict(one.values)
        for metric in self._metrics:
            if metric.threshold is not None and not metric.binary and metric.name in values:
                worse = -1 if metric.better == "higher" else 1
                values[metric.name] = tuple(float(worse * (x - metric.threshold) > 0) for x in values[metric.name])
        return structs.replace(one, values=values)

    def _nothing(self, metric: Metric, plain: Mapping[int, Sequence[float]]) -> str:
        if len(plain) < 2:
            alone = "only one point gives a value: there is nothing to compare it with"
            return alone if plain else "neither end, nor anything beside it, could be run: there is nothing to bisect"
        if not self._judges(metric):
            return f"{metric.name}: the two ends do not differ; there is nothing to bisect"
        bad = middle([x != 0 for numbers in plain.values() for x in numbers]) > 0.5
        return f"{metric.name}: both ends are {'bad' if bad else 'good'}; the rest is explained by flakes"


def _levels(span: Span, plain: Mapping[int, Sequence[float]]) -> dict[str, float]:
    """The levels themselves, of a change that was found by a threshold."""
    before = [x for at, numbers in plain.items() if at <= span.good for x in numbers]
    after = [x for at, numbers in plain.items() if at >= span.bad for x in numbers]
    return {"before": middle(before), "after": middle(after)}


def open_strategy(  # noqa: PLR0913 - what a stage knows
    settings: SearchSettings,
    count: int,
    metrics: Sequence[Metric],
    *,
    missing: Collection[int] = (),
    names: Sequence[str] = (),
    levels: Levels | None = None,
    weights: Sequence[float] = (),
) -> Strategy:
    """The strategy of [search] for `count` points.

    `missing`: points that are not there. `names`: of all points, for bisect's good and bad. `levels`: what a coarser stage
    knows, metric → (before, after); the search is then for that one change.
    `weights`: of all points, how likely a change came with each.
    """
    gone = frozenset(missing)
    there = [at for at in range(count) if at not in gone]
    inner: Strategy
    order = 1
    if settings.strategy == "bisect":
        good = _index_of(settings.good, names, there, 0, "good")
        bad = _index_of(settings.bad, names, there, len(there) - 1, "bad")
        there, order = there[min(good, bad) : max(good, bad) + 1], -1 if bad < good else 1
    shares = _shares(weights, there) if settings.priors else ()
    if (levels is not None or settings.strategy == "bisect") and len(there) > 1:
        # A coarser stage saw it: in a window of few points, each is likelier to have brought it than at first sight.
        each = min(EXPECTED / max(len(there), 8), 0.25)
        more = max(math.log(0.1) / math.log1p(-each) / (len(there) - 1), 1.0)
        shares = tuple(share * more for share in shares or [1.0] * len(there))
    effort = (settings, len(there), shares)
    if settings.strategy == "sweep" and levels is None:
        inner = Sweep(effort, metrics)
    elif settings.strategy == "sweep":
        # Between the two ends of a change one run of each tells noise from nothing: every point, and again in doubt.
        inner = Adaptive((structs.replace(settings, grid=1), *effort[1:]), metrics, known=True)
    elif settings.strategy == "bisect":
        inner = Bisect(effort, metrics, order)
    else:
        inner = Adaptive(effort, metrics, zoom=levels is not None)
    return PresentPoints(inner, there, count)


def strategy_for(
    settings: SearchSettings, points: Sequence[Point], metrics: Sequence[Metric], levels: Levels | None = None
) -> Strategy:
    """The same for points as a timeline has them."""
    missing, names = [at for at, point in enumerate(points) if point.missing], [point.id for point in points]
    more = partial(open_strategy, missing=missing, names=names, weights=[point.weight for point in points])
    return more(settings, len(points), metrics, levels=levels)


def _shares(weights: Sequence[float], there: Sequence[int]) -> tuple[float, ...]:
    """Weights of the points that are there, each with those of the missing ones before it; 1 on average, 0.2 at least."""
    if len(set(weights[1:])) < 2 or not there:
        return ()
    sums = [0.0, *accumulate(weights)]
    own = [sums[b + 1] - sums[a + 1] for a, b in pairwise([-1, *there])]
    mean = fmean(own)
    floored = [max(weight / mean, 0.2) for weight in own]
    return tuple(weight / fmean(floored) for weight in floored)


def _index_of(name: str, names: Sequence[str], there: Sequence[int], default: int, key: str) -> int:
    """The place of a point among those that are there; of one that is not, the next inside."""
    if not name or not there:
        return max(default, 0)
    if name not in names:
        said = f"expected one of the {len(names)} points of the timeline, found {name!r}{suggest(name, names)}"
        raise UsageError(f"search.{key}: {said}", next_command="edit [search] of hunt.toml")
    return min(bisect_left(there, names.index(name)), len(there) - 1)


class PresentPoints:
    """A strategy over the points that are there."""

    def __init__(self, inner: Strategy, there: Sequence[int], count: int) -> None:
        self._inner, self._there = inner, tuple(there)
        self._place = {at: k for k, at in enumerate(there)}
        self._gone = tuple(at for at in range(count) if at not in self._place)

    def decide(self, seen: Seen, in_flight: Runs, room: int) -> Decision:
        if not self._there:
            return Decision(asks=(), expected_left=0, notes=("no point of the timeline is available",))
        place, there = self._place, self._there
        known = {place[at]: one for at, one in seen.items() if at in place and one.outcomes}
        flying = {place[at]: runs for at, runs in in_flight.items() if at in place and runs}
        decision = self._inner.decide(known, flying, room)
        if not self._gone:
            return decision
        spans = []
        for span in decision.spans:
            good, bad = there[span.good], there[span.bad]
            inside = sorted([*(at for at in self._gone if good < at < bad), *(there[at] for at in span.between)])
            spans.append(structs.replace(span, good=good, bad=bad, between=tuple(inside)))
        asks = [structs.replace(a, index=there[a.index], ends=tuple(there[i] for i in a.ends)) for a in decision.asks]
        following = tuple(there[at] for at in decision.likely_next)
        return structs.replace(decision, asks=tuple(asks), likely_next=following, spans=tuple(spans))
