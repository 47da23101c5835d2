"""Bisect: one change between two known points, where runs may be flaky or noisy. Pure.

Both ends are run first and must differ. Then the next run is the one that tells most about where the change is, and the search
ends when one place is sure enough, or when it is sure that there is nothing: a flake. A belief is the probability of each
place, of "all as the first" and of "all as the last"; rates of flakes, or the levels on both sides, are learned on the way.
"""

from __future__ import annotations

import heapq
import math
import operator
from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import NamedTuple

import numpy as np
from msgspec import structs

from karat.hunts.model import Decision, Metric, Runs, Seen, Span
from karat.hunts.search import inference
from karat.hunts.search.inference import OUTLIERS, Array
from karat.hunts.search.observations import Readings, Values, read_metric
from karat.hunts.search.requests import MIDPOINT, SPECULATION, RunRequest, is_broken_range, nearest_runnable
from karat.hunts.search.spans import Effort, MetricPlan, decide, missed_dips, span_of

_NOTHING = 0.1  # That the change is not there at all, as far as is known beforehand.
_REPEATS = 12


class Belief(NamedTuple):
    """Where the change is, as far as is known. The change at k: point k is the first of the new kind."""

    first: int
    place: Array  # Of the change at first + 1, first + 2, …
    all_old: float
    all_new: float  # That there is no change: all as the first, or all as the last.
    wrong_old: float
    wrong_new: float  # How often a run at a point of either side looks as if it were of the other.
    flakes: float | None = None


def binary_belief(values: Values, old: int) -> Belief:
    """Of a metric that is good (0) or bad (1); `old`: which of them the first end should be."""
    wrong_old, wrong_new, weights = inference.rate_pairs()
    first = min(values)
    shape = (len(weights), max(values) - first + 1)
    as_old, as_new = np.zeros(shape), np.zeros(shape)
    for at, numbers in values.items():
        new = sum((value != 0) != bool(old) for value in numbers)
        same = len(numbers) - new
        as_old[:, at - first] = new * np.log(wrong_old) + same * np.log1p(-wrong_old)
        as_new[:, at - first] = same * np.log(wrong_new) + new * np.log1p(-wrong_new)
    place, all_old, all_new, share = _posterior(as_old, as_new, weights)
    rates = float(share @ wrong_old), float(share @ wrong_new)
    worse = np.cumsum([all_new, *place])
    worse = 1 - worse if old else worse
    false = sum(float(1 - worse[at - first]) * sum(x != 0 for x in numbers) for at, numbers in values.items())
    flakes = inference.seen_rate(false, rates[1] if old else rates[0])
    return Belief(first, place, all_old, all_new, *rates, flakes=flakes)


def level_belief(values: Values, spread: float, builds: float = 0.0) -> Belief:
    """Of a metric that has levels: those of both ends, and of all that surely belongs to them.

    `builds`: what of the spread is from build to build, and the same in all runs of one.
    """
    flat = iter(inference.to_scale([value for numbers in values.values() for value in numbers]).tolist())
    logs = {at: [next(flat) for _ in numbers] for at, numbers in values.items()}
    first, last = min(values), max(values)
    belief = _levels(logs, (inference.middle(logs[first]), inference.middle(logs[last]), spread), builds)
    cut = first + 1 + int(np.argmax(belief.place)) if len(belief.place) else last
    sides = [[x for at in logs for x in logs[at] if (at < cut) == side] for side in (True, False)]
    return _levels(logs, (inference.middle(sides[0]), inference.middle(sides[1]), spread), builds)


def _levels(logs: Values, model: tuple[float, float, float], builds: float) -> Belief:
    (old, new, spread), first = model, min(logs)
    share = min(builds / spread, 1.0) ** 2
    as_old, as_new = np.zeros((2, 1, max(logs) - first + 1))
    for at, numbers in logs.items():
        # So much less do several runs of one build say.
        each = 1 / (1 + share * (len(numbers) - 1))
        as_old[0, at - first] = each * sum(_density(x, old, spread) for x in numbers)
        as_new[0, at - first] = each * sum(_density(x, new, spread) for x in numbers)
    place, all_old, all_new, _ = _posterior(as_old, as_new, np.ones(1))
    apart = abs(new - old) / (2 * spread)
    wrong = max(0.5 * math.erfc(apart / math.sqrt(2)), OUTLIERS / 2)
    return Belief(first, place, all_old, all_new, wrong, wrong)


def _density(x: float, level: float, spread: float) -> float:
    """Logarithm, in units of the spread; an outlier may be anywhere."""
    off = (x - level) / spread
    return math.log((1 - OUTLIERS) * math.exp(-0.5 * off * off) / 2.5 + OUTLIERS / 20)


def _posterior(as_old: Array, as_new: Array, weights: Array) -> tuple[Array, float, float, Array]:
    """Every place at every pair of rates, and both kinds of nothing; the last: how much each pair is believed."""
    old = np.cumsum(as_old, axis=1)
    new = as_new.sum(axis=1, keepdims=True) - np.cumsum(as_new, axis=1)
    places = (old + new)[:, :-1]
    number = max(places.shape[1], 1)
    none_old, none_new = old[:, -1], as_new.sum(axis=1)
    best = max(float(places.max(initial=-np.inf)), float(none_old.max()), float(none_new.max()))
    prior = weights[:, None] * (1 - _NOTHING) / number
    each = prior * np.exp(places - best)
    rest = [weights * _NOTHING / 2 * np.exp(none - best) for none in (none_old, none_new)]
    total = float(each.sum() + rest[0].sum() + rest[1].sum())
    share = (each.sum(axis=1) + rest[0] + rest[1]) / total
    return (each.sum(axis=0) / total, float(rest[0].sum()) / total, float(rest[1].sum()) / total, share)


def weighed(belief: Belief, weights: Sequence[float]) -> Belief:
    """The belief where places are not equally likely beforehand."""
    if not weights:
        return belief
    place = belief.place * np.array(weights[belief.first + 1 : belief.first + 1 + len(belief.place)])
    total = float(place.sum()) + belief.all_old + belief.all_new
    return belief._replace(place=place / total, all_old=belief.all_old / total, all_new=belief.all_new / total)


class Bisect:
    """Known good and bad; `good` may be the newer one: then the change is a repair."""

    def __init__(self, effort: Effort, metrics: Sequence[Metric], *, good: int, bad: int) -> None:
        self.effort, self._metrics = effort, tuple(metrics)
        self.settings, self.count = effort.settings, effort.points
        self.first, self.last = min(good, bad), max(good, bad)
        self.old = int(bad < good)

    def decide(self, seen: Seen, in_flight: Runs, room: int) -> Decision:
        plans = [
            MetricSearch(self, metric, read_metric(metric, seen), in_flight).plan(max(room, 1))
            for metric in self._metrics
        ]
        tested = {at for at, one in seen.items() if one.values}
        missed = missed_dips(self.count, tested, seen.keys() - tested, "--strategy sweep")
        return decide(plans, missed, self.effort, seen, in_flight, room)


class MetricSearch:
    """One metric, at one moment."""

    def __init__(self, of: Bisect, metric: Metric, read: Readings, in_flight: Runs) -> None:
        self.settings, self.count, self.weights = of.settings, of.count, of.effort.weights
        self.first, self.last, self.old = of.first, of.last, of.old
        self.metric, self.in_flight = metric, in_flight
        self.dead, self.again = sorted(read.dead), read.again
        self.values: Values = read.values
        self.plain: Values = read.values
        self.under = read.under
        self.binary = metric.binary or metric.threshold is not None
        if metric.threshold is not None and not metric.binary:
            # Good or bad by the threshold.
            bad = operator.lt if metric.better == "higher" else operator.gt
            self.values = {
                at: tuple(float(bad(x, metric.threshold)) for x in numbers) for at, numbers in self.plain.items()
            }
        self.smallest = 0.0 if metric.better == "equal" else self.settings.smallest

    def plan(self, room: int) -> MetricPlan:
        retries = [RunRequest(1, at, "again: it failed") for at in sorted(self.again - self.in_flight.keys())]
        ends = [*self._end(self.first, 1), *self._end(self.last, -1)]
        inside = {at: numbers for at, numbers in self.values.items() if self.first <= at <= self.last}
        if ends or len(inside) < 2:
            waiting = ends or retries or self.in_flight
            alone = "only one point gives a value: there is nothing to compare it with"
            untested = "neither end, nor anything beside it, could be run: there is nothing to bisect"
            note = "" if waiting else alone if inside else untested
            return MetricPlan(self.metric.name, (*ends, *retries), left=len(ends) + 4, note=note)
        low, high, noise = min(inside), max(inside), None
        if self.binary:
            belief = weighed(binary_belief(inside, self.old), self.weights)
            nothing = belief.all_old + belief.all_new
        else:
            # For the spread, which every run tells something about.
            levels = inference.level_map(self.values, self.count, smallest=self.smallest, under=self.under)
            self.values = self.plain = levels.clean or self.values
            inside = {at: self.values[at] for at in inside}
            belief, noise = (
                level_belief(inside, max(levels.spread, 1e-12), levels.builds),
                levels.noise(self.metric.name),
            )
            belief = weighed(belief, self.weights)
            # Whether the levels of both ends differ, from the runs of the ends alone.
            spread = levels.spread if levels.sure else None
            apart = inference.differ(self.values[low], self.values[high], smallest=self.smallest, spread=spread)
            nothing = max(belief.all_old + belief.all_new, 1 - apart)
        if nothing >= self.settings.confidence or (
            nothing > 0.5 and all(len(self.values[at]) >= _REPEATS for at in (low, high))
        ):
            return MetricPlan(
                self.metric.name, (), flakes=belief.flakes, note=self._no_change_note(belief), noise=noise
            )
        span, sure = self._span(belief)
        spans = (span,) if span else ()
        if sure and nothing <= 1 - self.settings.confidence:
            return MetricPlan(self.metric.name, (), spans, belief.flakes, noise=noise)
        requests = tuple(self._requests(belief, nothing, room))
        # Runs still to come: bits that are missing, over bits a run gives at best.
        place = belief.place[belief.place > 0]
        bits = float(-(place * np.log2(place)).sum())
        best = float(_gain(np.array([0.5]), belief.wrong_old, belief.wrong_new)[0])
        left = math.ceil(bits / max(best, 0.05)) + 1
        return MetricPlan(self.metric.name, (*retries, *requests), spans, belief.flakes, left, noise=noise)

    def _end(self, end: int, inward: int) -> Iterator[RunRequest]:
        """The known point, or the next inside that can be run."""
        at, step = end, 1
        while self.first <= at <= self.last:
            if at in self.values or at in self.again or at in self.in_flight:
                return
            if at not in self.dead:
                yield RunRequest(0, at, "end point" if at == end else "in place of an end point that cannot be run")
                return
            at += inward * step
            step *= 2

    def _no_change_note(self, belief: Belief) -> str:
        if not self.binary:
            return f"{self.metric.name}: the two ends do not differ; there is nothing to bisect"
        # Whether the runs of both ends say the opposite of what they are known as.
        ends = belief.first, belief.first + len(belief.place)
        first, last = (inference.middle([float(x != 0) for x in self.values[at]]) for at in ends)
        if (first, last) == (1 - self.old, self.old):
            return f"{self.metric.name}: the good end is bad, and the bad end is good: swap good and bad in [search]"
        state = "bad" if (belief.all_old >= belief.all_new) == bool(self.old) else "good"
        return f"{self.metric.name}: both ends are {state}; the rest is explained by flakes"

    def _span(self, belief: Belief) -> tuple[Span | None, bool]:
        """The likeliest place, and whether it is sure."""
        dead = np.array(self.dead, dtype=np.intp)
        every = np.arange(belief.first, belief.first + len(belief.place) + 1)
        alive = every[~np.isin(every, dead)]
        sums = np.concatenate([[0.0], np.cumsum(belief.place)])
        masses = np.diff(sums[alive - belief.first])
        places = zip(alive[:-1], alive[1:], masses, strict=True)
        classes = [(int(a), int(b), float(mass)) for a, b, mass in places if mass > 1e-6]
        if not classes:
            return None, True
        low, high, chance = max(classes, key=lambda c: c[2])
        # Untried points among many broken ones count as broken, too: the place is the whole range.
        tested = [at for at in self.values if self.first <= at <= self.last]
        left = max((at for at in tested if at <= low), default=low)
        right = min((at for at in tested if at >= high), default=high)
        inside = [at for at in self.dead if left < at < right]
        if is_broken_range(inside) and (inside[0], inside[-1]) == (left + 1, right - 1):
            low, high, chance = left, right, sum(c for a, b, c in classes if a >= left and b <= right)
        closed = low in self.values and high in self.values
        sure = chance >= self.settings.confidence and closed
        if chance <= 0.5 or not closed:
            return None, sure
        before = inference.middle([x for at, numbers in self.plain.items() if at <= low for x in numbers])
        after = inference.middle([x for at, numbers in self.plain.items() if at >= high for x in numbers])
        span = span_of(self.metric, (low, high), (before, after), min(chance, 0.9999), self.dead)
        span = structs.replace(span, sure=sure)
        if self.metric.threshold is not None and not self.metric.binary:
            span = structs.replace(span, kind="improvement" if self.old else "regression")
        return span, sure

    def _requests(self, belief: Belief, nothing: float, room: int) -> Iterator[RunRequest]:
        """The run that tells most; then, with room, what would tell most after it, either way."""
        ends = (belief.first, belief.first + len(belief.place))
        yield from (
            RunRequest(1.5 + 0.1 * len(self.values[at]), at, "again: do the ends differ?")
            for at in (ends if nothing > 1 - self.settings.confidence else ())
            if len(self.values.get(at, ())) in range(1, _REPEATS) and not self.in_flight.get(at)
        )
        cuts = sorted(at for at in self.in_flight if self.first < at < self.last)
        # Stretches between what is in flight, the likeliest first.
        edges = [ends[0], *(at for at in cuts if ends[0] < at < ends[1]), ends[1]]
        pieces = [(-_mass(belief, a, b), a, b) for a, b in pairwise(edges)]
        heapq.heapify(pieces)
        for k in range(room):
            if not pieces:
                return
            _, low, high = heapq.heappop(pieces)
            best = self._best(belief, low, high)
            if best is None:
                continue
            ahead = bool(k or cuts)
            if best not in self.in_flight:
                rank = SPECULATION + k if ahead else 2
                if best in self.values:
                    yield RunRequest(rank, best, "again: unsure")
                else:
                    yield RunRequest(rank, best, MIDPOINT, (low, high))
            for part in ((low, best), (best, high)):
                mass = _mass(belief, *part)
                if mass > 0 and part != (low, high):
                    heapq.heappush(pieces, (-mass, *part))

    def _best(self, belief: Belief, low: int, high: int) -> int | None:
        """The point whose run tells most, if the change is after low and not after high."""
        first, last = belief.first, belief.first + len(belief.place)
        inside = belief.place[low - first : high - first]
        total = inside.sum()
        if total <= 0:
            return None
        new = np.cumsum(inside) / total
        gain = _gain(new, belief.wrong_old, belief.wrong_new)
        points = np.arange(low + 1, high + 1)
        whole = low == first and high == last
        spent = [at for at, numbers in self.values.items() if len(numbers) >= _REPEATS]
        allowed = ~np.isin(points, np.array([*self.dead, *spent], dtype=np.intp))
        allowed[-1] &= whole
        gain = np.where(allowed, gain, -1.0)
        best = int(points[int(np.argmax(gain))])
        if gain.max() <= 1e-9:
            return None
        if best in self.values:
            return best
        # Away from broken neighbours, within what is untested around it.
        low = max((at for at in self.values if at < best), default=first)
        high = min((at for at in self.values if at > best), default=last)
        found = nearest_runnable(best, low + 1, high - 1, self.dead, self.in_flight)
        return best if found is None else found


def _gain(new: Array, wrong_old: float, wrong_new: float) -> Array:
    """Bits that a run tells about the place, at points that are of the new kind so probably."""
    seen = new * (1 - wrong_new) + (1 - new) * wrong_old
    seen = np.clip(seen, 1e-12, 1 - 1e-12)
    bits = -(seen * np.log2(seen) + (1 - seen) * np.log2(1 - seen))
    return np.asarray(bits - new * inference.entropy(wrong_new) - (1 - new) * inference.entropy(wrong_old))


def _mass(belief: Belief, low: int, high: int) -> float:
    return float(belief.place[low - belief.first : high - belief.first].sum())
