"""Crashes nobody asked for: where points that give values turn into points that fail, and stay so.

Pure. A single point that fails is a hole, and costs no more runs than it takes to believe it. Neighbouring tested points
that all fail are a change: its two ends are closed in on.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from itertools import groupby, pairwise
from typing import NamedTuple

from karat.hunt.flakes import flake_map
from karat.hunt.levels import middle
from karat.hunt.searching import Metric, Span
from karat.hunt.spans import between
from karat.hunt.splitting import halves
from karat.hunt.wishes import SPECULATION, Wish


class Edge(NamedTuple):
    """An end of a range of failures."""

    low: int
    high: int
    begins: bool
    """Whether the failures begin here; else they end."""
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


def lasting(
    found: Sequence[Edge], values: Collection[int], failed: Collection[int], count: int
) -> tuple[Edge, ...]:
    """Those that are likelier than so many flakes side by side, where nothing is run again."""
    outcomes = dict.fromkeys(values, (0.0,)) | dict.fromkeys(failed, (1.0,))
    known = flake_map(outcomes, count)
    chance = dict(zip(pairwise(known.positions), known.chance, strict=True))
    return tuple(
        edge._replace(confidence=min(float(chance[edge.low, edge.high]), 0.99))
        for edge in found
        if chance[edge.low, edge.high] > 0.5
    )


def edge_wishes(
    found: Sequence[Edge], dead: Sequence[int], pending: Mapping[int, int]
) -> Iterator[Wish]:
    """Halves each end until neighbours are found."""
    for edge in found:
        for index in halves(edge.low, edge.high, dead, pending):
            ahead = any(edge.low < at < edge.high for at in pending)
            why = f"midpoint of {edge.low} and {edge.high}: failures {'begin' if edge.begins else 'end'}"
            yield Wish(SPECULATION if ahead else 2.5, index, why)
            break


def edge_spans(
    metric: Metric,
    found: Sequence[Edge],
    values: Mapping[int, Sequence[float]],
    dead: Collection[int],
) -> tuple[Span, ...]:
    """The ends as changes: without a level on the failing side."""
    return tuple(
        Span(
            metric=metric.name,
            good=edge.low,
            bad=edge.high,
            before=middle(values[edge.low]) if edge.begins else None,
            after=None if edge.begins else middle(values[edge.high]),
            confidence=edge.confidence,
            kind="crash" if edge.begins else "improvement",
            between=between(edge.low, edge.high, dead),
        )
        for edge in found
    )


def believed(
    again: Collection[int], values: Collection[int], failed: Collection[int]
) -> frozenset[int]:
    """Points that failed once, and whose tested neighbours failed for good: no second try is needed."""
    tested = sorted({*values, *failed, *again})
    beside = zip([-1, *tested], tested, [*tested[1:], -1], strict=False)
    return frozenset(
        at
        for left, at, right in beside
        if at in again and {left, right} - {-1} and {left, right} - {-1} <= set(failed)
    )
