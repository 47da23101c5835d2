"""Spans: changes as a search reports them, and where points that give values turn into points that fail. Pure.

A single point that fails is a hole, and costs no more runs than it takes to believe it. Neighbouring tested points that all
fail are a change: its two ends are closed in on.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Collection, Iterable, Iterator, Sequence
from itertools import groupby, pairwise
from typing import NamedTuple

from msgspec import structs

from karat.hunts.model import CRASH, Metric, Missed, Runs, Span
from karat.hunts.search.inference import ChangeMap, flake_map, middle
from karat.hunts.search.observations import Values
from karat.hunts.search.requests import MIDPOINT, SPECULATION, RunRequest, count_untried, midpoints


def spans_of(
    metric: Metric, found: ChangeMap, values: Values, dead: Sequence[int], confidence: float, *, known: bool = False
) -> tuple[Span, ...]:
    """Every likely change; while the search goes on, some are still wide. `dead`: sorted; `known`: one was seen from afar."""
    wide = [count_untried(low, high, dead) > 0 for low, high in pairwise(found.positions)]
    # A change that is not narrowed down yet is told when it is more likely than that.
    at = [i for i, chance in enumerate(found.chance) if chance > (0.95 if wide[i] else 0.5)]
    edges = [-1, *at, len(found.positions) - 1]
    values = found.clean or values
    stretches = (found.positions[a + 1 : b + 1] for a, b in pairwise(edges))
    levels = [middle([value for p in stretch for value in values[p]]) for stretch in stretches]
    if metric.binary:
        levels = [round(level) for level in levels]
    believed = [len(values[position]) >= found.needed for position in found.positions]
    spans = []
    for k, i in enumerate(at):
        chance, ends = float(found.chance[i]), found.positions[i : i + 2]
        sure = not wide[i] and chance >= confidence and all(believed[i : i + 2])
        # Below 0.9, the doubt may be about the place, but not about a short dip: builds of one level look like those, too.
        dips = (m for m in (k - 1, k) if 0 <= m < len(at) - 1 and at[m + 1] - at[m] <= 3)
        back = any(abs(levels[m] - levels[m + 2]) < 0.5 * abs(levels[m] - levels[m + 1]) for m in dips)
        doubtful = chance < 0.9 and (back or found.chance[max(i - 2, 0) : i + 3].sum() < 0.9)
        if doubtful and not (metric.binary or known):
            continue
        span = span_of(metric, ends, levels[k : k + 2], min(chance, 0.9999), dead)
        spans.append(structs.replace(span, sure=sure))
    return tuple(spans)


def span_of(
    metric: Metric, ends: Sequence[int], levels: Sequence[float | None], sure: float, dead: Collection[int]
) -> Span:
    """A change between two points, with the dead ones between them; a side without a level fails."""
    (good, bad), (before, after) = ends, levels
    gone = tuple(sorted(at for at in dead if good < at < bad))
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
    return Span(metric=name, good=good, bad=bad, before=before, after=after, confidence=sure, kind=kind, between=gone)


def wide_span_notes(spans: Iterable[Span]) -> tuple[str, ...]:
    """A sentence for each change that has points between its sides which were never tried."""
    rests = ((span, span.bad - span.good - 1 - len(span.between)) for span in spans)
    return tuple(
        f"{span.metric}: a change is only known as a range: {len(span.between)} of the points in it that were tried cannot be "
        f"run, and {rest} {'was' if rest == 1 else 'were'} not tried; it may be at any of them"
        for span, rest in rests
        if rest > 0
    )


def missed_dips(count: int, tested: Collection[int], dead: Collection[int], rule_out: str, length: int = 0) -> Missed:
    """What nobody looked at. `rule_out`: what to say in hunt.toml, or on the command line; `length`: of the dip to speak of."""
    ends = sorted(tested)
    stretches = [high - low - 1 for low, high in pairwise([-1, *ends, count])]
    for at in dead:
        stretches[bisect_left(ends, at)] -= 1
    longest, left = max(stretches), sum(stretches)
    length = length or (longest + 1) // 2
    places = left + len(tested) - length + 1
    chance = sum(max(size - length + 1, 0) for size in stretches) / max(places, 1)
    if not left:
        text = "every point that can be run was run: no dip was missed"
    else:
        points = "1 point" if longest == 1 else f"{longest} points"
        runs = "1 more run rules" if left == 1 else f"{left} more runs rule"
        share = f"{chance:.0%}" if chance >= 0.005 else "hardly any"
        could = f"of up to {points} could have been missed ({share} of those that last {length})"
        text = f"a dip or a stretch of crashes {could}; {runs} that out: {rule_out}"
    return Missed(longest_dip=longest, runs_to_rule_out=left, length=length, chance=chance, message=text)


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


def beside_failures(
    values: Collection[int], failed: Collection[int], every: range, tried: Collection[int]
) -> Iterator[RunRequest]:
    """Both sides of a point that fails alone: it may be one of several."""
    tested = sorted([*values, *failed])
    for before, at, after in zip(tested, tested[1:], tested[2:], strict=False):
        if at in failed and before not in failed and after not in failed:
            sides = (beside for beside in (at - 1, at + 1) if beside in every and beside not in tried)
            yield from (RunRequest(2.5, beside, "beside a point that fails") for beside in sides)


def edge_spans(metric: Metric, found: Sequence[Edge], values: Values, dead: Collection[int]) -> tuple[Span, ...]:
    """The ends as changes: without a level on the failing side."""
    sides = [(middle(values[edge.low]), None) if edge.begins else (None, middle(values[edge.high])) for edge in found]
    pairs = zip(found, sides, strict=True)
    spans = [span_of(metric, (edge.low, edge.high), levels, edge.confidence, dead) for edge, levels in pairs]
    return tuple(structs.replace(one, sure=one.bad - one.good - 1 == len(one.between)) for one in spans)


def surely_failing(again: Collection[int], values: Collection[int], failed: Collection[int]) -> frozenset[int]:
    """Points that failed once, and whose tested neighbours failed for good: no second try is needed."""
    tested = sorted({*values, *failed, *again})
    beside = {at: set(tested[max(i - 1, 0) : i + 2]) - {at} for i, at in enumerate(tested)}
    return frozenset(at for at in again if beside[at] and beside[at] <= set(failed))
