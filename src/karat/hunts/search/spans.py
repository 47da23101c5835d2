"""Spans: changes as a search reports them, and where points that give values turn into points that fail. Pure.

A single point that fails is a hole, and costs no more runs than it takes to believe it. Neighbouring tested points that all
fail are a change: its two ends are closed in on.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Collection, Iterable, Iterator, Sequence
from itertools import groupby, pairwise
from typing import NamedTuple

from karat.hunts.model import CRASH, Decision, Metric, Missed, Noise, Runs, Seen, Span
from karat.hunts.search.inference import ChangeMap, flake_map, middle
from karat.hunts.search.observations import Values, count_runs
from karat.hunts.search.requests import MIDPOINT, SPECULATION, RunRequest, allowance, choose, count_untried, midpoints


class MetricPlan(NamedTuple):
    """What one metric wants, and what is known of it."""

    requests: tuple[RunRequest, ...]
    spans: tuple[Span, ...] = ()
    flakes: float | None = None
    left: int = 0  # Runs still to come, as far as can be said.
    note: str = ""
    noise: Noise | None = None


def decide(
    plans: Sequence[MetricPlan], missed: Missed | None, limit: int, seen: Seen, in_flight: Runs, room: int
) -> Decision:
    """What to run next for all metrics together, with `limit` runs in all (0: no limit), and what is known of them."""
    requests = [request for plan in plans for request in plan.requests]
    affordable = [request for request in requests if not limit or request.rank < SPECULATION]
    wanted = choose(affordable, allowance(limit, seen, in_flight, room))
    following = choose(affordable, len(wanted) + 4)[len(wanted) :]
    spans = tuple(span for plan in plans for span in plan.spans)
    notes = tuple(dict.fromkeys(plan.note for plan in plans if plan.note))
    if not requests and not in_flight:
        notes += wide_span_notes(spans)
    elif limit and not wanted and not in_flight and count_runs(seen) >= limit:
        notes += (f"stopped at {count_runs(seen)} runs (max_runs): more runs were needed",)
    return Decision(
        asks=wanted,
        likely_next=tuple(ask.index for ask in following),
        expected_left=max((plan.left for plan in plans), default=0),
        spans=spans,
        flake_rate=max((plan.flakes for plan in plans if plan.flakes is not None), default=None),
        missed=missed,
        noise=tuple(plan.noise for plan in plans if plan.noise is not None),
        notes=notes,
    )


def spans_of(metric: Metric, found: ChangeMap, values: Values, dead: Sequence[int]) -> tuple[Span, ...]:
    """Every likely change; while the search goes on, some are still wide. `dead`: sorted."""
    wide = [count_untried(low, high, dead) > 0 for low, high in pairwise(found.positions)]
    # A change that is not narrowed down yet is told when it is more likely than that.
    at = [i for i, chance in enumerate(found.chance) if chance > (0.95 if wide[i] else 0.5)]
    edges = [-1, *at, len(found.positions) - 1]
    values = found.clean or values
    stretches = (found.positions[a + 1 : b + 1] for a, b in pairwise(edges))
    levels = [middle([value for p in stretch for value in values[p]]) for stretch in stretches]
    if metric.binary:
        levels = [round(level) for level in levels]
    return tuple(
        span_of(metric, found.positions[i : i + 2], levels[k : k + 2], min(float(found.chance[i]), 0.9999), dead)
        for k, i in enumerate(at)
    )


def span_of(
    metric: Metric, ends: Sequence[int], levels: Sequence[float | None], sure: float, dead: Collection[int]
) -> Span:
    """A change between two points, with the dead ones between them; a side without a level fails."""
    (good, bad), (before, after) = ends, levels
    between = tuple(sorted(at for at in dead if good < at < bad))
    if before is None or after is None:
        kind = "crash" if after is None else "recovery"
    elif metric.name == CRASH:
        kind = "recovery" if after <= before else "crash"
    elif metric.binary:
        kind = "improvement" if after <= before else "regression"
    elif metric.better in {"higher", "lower"}:
        kind = "regression" if (after - before < 0) == (metric.better == "higher") else "improvement"
    else:
        kind = "shift"
    name = metric.name
    return Span(
        metric=name, good=good, bad=bad, before=before, after=after, confidence=sure, kind=kind, between=between
    )


def wide_span_notes(spans: Iterable[Span]) -> tuple[str, ...]:
    """A sentence for each change that has points between its sides which were never tried."""
    rests = ((span, span.bad - span.good - 1 - len(span.between)) for span in spans)
    return tuple(
        f"{span.metric}: a change is only known as a range: {len(span.between)} of the points in it that were tried cannot be "
        f"run, and {rest} {'was' if rest == 1 else 'were'} not tried; it may be at any of them"
        for span, rest in rests
        if rest > 0
    )


def missed_dips(count: int, tested: Collection[int], dead: Collection[int], rule_out: str) -> Missed:
    """What nobody looked at. `rule_out`: what to say in hunt.toml, or on the command line."""
    ends = sorted(tested)
    stretches = [high - low - 1 for low, high in pairwise([-1, *ends, count])]
    for at in dead:
        stretches[bisect_left(ends, at)] -= 1
    longest, left = max(stretches), sum(stretches)
    if not left:
        text = "every point that can be run was run: no dip was missed"
    else:
        points = "1 point" if longest == 1 else f"{longest} points"
        runs = "1 more run rules" if left == 1 else f"{left} more runs rule"
        text = f"a dip of up to {points} between two tested ones could have been missed, a longer one has a tested point in it; {runs} it out ({rule_out})"
    return Missed(longest_dip=longest, runs_to_rule_out=left, message=text)


class Edge(NamedTuple):
    """An end of a range of failures."""

    low: int
    high: int
    begins: bool  # Whether the failures begin here; else they end.
    confidence: float = 0.99


def edges(values: Collection[int], failed: Collection[int], count: int) -> tuple[Edge, ...]:
    """Ends of every range of failures that was met at two neighbouring tested points, or at an end of the timeline."""
    tested = sorted([(at, False) for at in values] + [(at, True) for at in failed])
    found: list[Edge] = []
    groups = [(bad, [at for at, _ in group]) for bad, group in groupby(tested, key=lambda t: t[1])]
    for k, (bad, members) in enumerate(groups):
        lasting = len(members) > 1 or members[0] in {0, count - 1}
        if not bad or not lasting:
            continue
        if k:
            found.append(Edge(groups[k - 1][1][-1], members[0], True))
        if k + 1 < len(groups):
            found.append(Edge(members[-1], groups[k + 1][1][0], False))
    return tuple(found)


def likelier_than_flakes(
    found: Sequence[Edge], values: Collection[int], failed: Collection[int], count: int
) -> tuple[Edge, ...]:
    """Those that are likelier than so many flakes side by side, where nothing is run again."""
    outcomes = dict.fromkeys(values, (0.0,)) | dict.fromkeys(failed, (1.0,))
    known = flake_map(outcomes, count)
    chance = dict(zip(pairwise(known.positions), known.chance, strict=True))
    likely = [(edge, float(chance[edge.low, edge.high])) for edge in found]
    return tuple(edge._replace(confidence=min(sure, 0.99)) for edge, sure in likely if sure > 0.5)


def edge_requests(found: Sequence[Edge], dead: Sequence[int], pending: Runs) -> Iterator[RunRequest]:
    """Halves each end until neighbours are found."""
    for edge in found:
        index = next(midpoints(edge.low, edge.high, dead, pending), None)
        if index is not None:
            ahead = any(edge.low < at < edge.high for at in pending)
            why = f"{MIDPOINT}: failures {'begin' if edge.begins else 'end'}"
            yield RunRequest(SPECULATION if ahead else 2.5, index, why, (edge.low, edge.high))


def edge_spans(metric: Metric, found: Sequence[Edge], values: Values, dead: Collection[int]) -> tuple[Span, ...]:
    """The ends as changes: without a level on the failing side."""
    sides = [(middle(values[edge.low]), None) if edge.begins else (None, middle(values[edge.high])) for edge in found]
    return tuple(
        span_of(metric, (edge.low, edge.high), levels, edge.confidence, dead)
        for edge, levels in zip(found, sides, strict=True)
    )


def surely_failing(again: Collection[int], values: Collection[int], failed: Collection[int]) -> frozenset[int]:
    """Points that failed once, and whose tested neighbours failed for good: no second try is needed."""
    tested = sorted({*values, *failed, *again})
    beside = {at: set(tested[max(i - 1, 0) : i + 2]) - {at} for i, at in enumerate(tested)}
    return frozenset(at for at in again if beside[at] and beside[at] <= set(failed))
