"""Zooming: from the changes of a stage to what the next one looks at. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise

import msgspec

from karat.hunt.searching import Span


class Site(msgspec.Struct, frozen=True, kw_only=True):
    """A place where something changed; changes of several metrics there are looked into once."""

    good: int
    bad: int
    numbers: tuple[int, ...]
    """Of its changes, in the order of the stage's spans."""


def sites(spans: Sequence[Span]) -> tuple[Site, ...]:
    """Places of change, oldest first; spans that overlap are one place."""
    found: list[Site] = []
    for number in sorted(range(len(spans)), key=lambda n: (spans[n].good, spans[n].bad)):
        span = spans[number]
        last = found[-1] if found else None
        if last is not None and span.good < last.bad:
            found[-1] = Site(
                good=last.good, bad=max(last.bad, span.bad), numbers=(*last.numbers, number)
            )
        else:
            found.append(Site(good=span.good, bad=span.bad, numbers=(number,)))
    return tuple(found)


def child_key(parent: str, number: int, depth: int) -> str:
    """`0.2/1`: change 2 of stage 0, looked into at stage 1."""
    return f"{parent}.{number}/{depth}"


def levels_of(spans: Sequence[Span], site: Site) -> dict[str, tuple[float, float]]:
    """Metric → its levels before and after, as a coarser stage saw them."""
    known: dict[str, tuple[float, float]] = {}
    for number in site.numbers:
        span = spans[number]
        if span.before is not None and span.after is not None:
            known.setdefault(span.metric, (span.before, span.after))
    return known


def reproduced(spans: Sequence[Span], metrics: Sequence[str]) -> bool:
    """Whether a finer stage saw a change of one of these metrics."""
    return any(span.metric in metrics for span in spans)


def dips(spans: Sequence[Span]) -> Mapping[int, int]:
    """Change → the number of its dip: one metric left its level, and with the next change came back to it."""
    paired: dict[int, int] = {}
    for metric in dict.fromkeys(span.metric for span in spans):
        numbers = [n for n, span in enumerate(spans) if span.metric == metric]
        numbers.sort(key=lambda n: spans[n].good)
        for first, second in pairwise(numbers):
            if first not in paired and _comes_back(spans[first], spans[second]):
                paired[first] = paired[second] = len(set(paired.values()))
    return paired


def _comes_back(there: Span, back: Span) -> bool:
    if None in (there.before, there.after, back.before, back.after):
        return False
    start, low, end = there.before, there.after, back.after
    assert start is not None  # noqa: S101 - for the type checker: None was looked for above
    assert low is not None  # noqa: S101
    assert end is not None  # noqa: S101
    left, returned = low - start, end - low
    return left * returned < 0 and abs(end - start) <= 0.25 * min(abs(left), abs(returned))
