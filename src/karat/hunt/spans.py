"""Spans: changes as a search reports them, with the levels before and after.

Pure.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Collection, Iterable, Mapping, Sequence
from itertools import pairwise

from karat.changes.series import Better
from karat.hunt.holes import untried
from karat.hunt.levels import Map, middle
from karat.hunt.metric_agreement import CRASH
from karat.hunt.searching import Metric, Missed, Span

_LIKELY = 0.5
_WIDE = 0.95
"""A change that is not narrowed down yet is told when it is this likely."""


def spans_of(
    metric: Metric, found: Map, values: Mapping[int, Sequence[float]], dead: Sequence[int]
) -> tuple[Span, ...]:
    """Every likely change; while the search goes on, some are still wide. `dead`: sorted."""
    wide = [untried(low, high, dead) > 0 for low, high in pairwise(found.positions)]
    at = [i for i, chance in enumerate(found.chance) if chance > (_WIDE if wide[i] else _LIKELY)]
    edges = [-1, *at, len(found.positions) - 1]
    levels = [
        middle([value for p in found.positions[a + 1 : b + 1] for value in values[p]])
        for a, b in pairwise(edges)
    ]
    if metric.binary:
        levels = [round(level) for level in levels]
    return tuple(
        Span(
            metric=metric.name,
            good=found.positions[i],
            bad=found.positions[i + 1],
            before=levels[k],
            after=levels[k + 1],
            confidence=min(float(found.chance[i]), 0.9999),
            kind=kind(metric, levels[k], levels[k + 1]),
            between=between(found.positions[i], found.positions[i + 1], dead),
        )
        for k, i in enumerate(at)
    )


def between(low: int, high: int, dead: Collection[int]) -> tuple[int, ...]:
    """Points between two that cannot be run."""
    return tuple(sorted(at for at in dead if low < at < high))


def left_wide(spans: Iterable[Span]) -> tuple[str, ...]:
    """A sentence for each change that has points between its sides which were never tried."""
    rests = ((span, span.bad - span.good - 1 - len(span.between)) for span in spans)
    return tuple(
        f"{span.metric}: a change is known as a range only: {len(span.between)} of the points in it that were tried cannot be "
        f"run, and {rest} {'was' if rest == 1 else 'were'} not tried; it may be any of them"
        for span, rest in rests
        if rest > 0
    )


def kind(metric: Metric, before: float, after: float) -> str:
    """regression, improvement, shift, crash."""
    if metric.binary:
        worse = after > before
        return ("crash" if metric.name == CRASH else "regression") if worse else "improvement"
    return direction(metric.better, after - before)


def direction(better: Better | None, moved: float) -> str:
    """What a move is called."""
    if better not in {"higher", "lower"}:
        return "shift"
    return "regression" if (moved < 0) == (better == "higher") else "improvement"


def missed(count: int, tested: Collection[int], dead: Collection[int], rule_out: str) -> Missed:
    """What nobody looked at. `rule_out`: what to say in hunt.toml, or on the command line."""
    stretches = [high - low - 1 for low, high in pairwise([-1, *sorted(tested), count])]
    if dead:
        ends = sorted(tested)
        for at in dead:
            stretches[bisect_left(ends, at)] -= 1
    longest, left = max(stretches), sum(stretches)
    if not left:
        text = "every point that can be run was run: no dip was missed for want of looking"
    else:
        points = "1 point" if longest == 1 else f"{longest} points"
        runs = "1 more run rules" if left == 1 else f"{left} more runs rule"
        text = f"a dip of up to {points} between two tested ones could have been missed, a longer one has a tested point in it; {runs} it out ({rule_out})"
    return Missed(longest_dip=longest, runs_to_rule_out=left, message=text)
