"""Stages: the words of `stages`, understood: a timeline, and how coarse it looks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise

import msgspec

from karat.findings import UsageError, suggest
from karat.hunts import settings as durations
from karat.hunts.model import Span
from karat.hunts.settings import EDIT, HuntSettings, Stage

GROUP = "karat.timelines"
BUILT_IN = ("containers", "checkouts", "commits", "packages", "values")
_STEPPED = ("containers", "checkouts")
"""Those that have a step; `commits by day` would be checkouts."""


def stages(settings: HuntSettings) -> tuple[Stage, ...]:
    """Every stage, coarse to fine."""
    if not settings.stages:
        raise UsageError(
            f"stages: expected at least one of {', '.join(BUILT_IN)}, found none", next_command=EDIT
        )
    return tuple(_stage(text, settings) for text in settings.stages)


def _stage(text: str, settings: HuntSettings) -> Stage:
    words = text.split()
    timeline = words[0] if words else ""
    if timeline not in BUILT_IN and timeline not in _others():
        known = (*BUILT_IN, *_others())
        raise UsageError(
            f"stages: no timeline is called {timeline!r}{suggest(timeline, known)} (known: {', '.join(known)})",
            next_command=EDIT,
        )
    if len(words) == 1:
        return Stage(timeline=timeline, step=_own_step(timeline, settings), text=text)
    step = durations.parse_step(" ".join(words[2:])) if words[1] == "by" else None
    if step is None:
        raise UsageError(
            f"stages: expected {timeline!r} or '{timeline} by day', found {text!r}",
            next_command=EDIT,
        )
    if timeline in BUILT_IN and timeline not in _STEPPED:
        raise UsageError(
            f"stages: expected {timeline!r} without a step, found {text!r}", next_command=EDIT
        )
    return Stage(timeline=timeline, step=step, text=text)


def _own_step(timeline: str, settings: HuntSettings) -> float | None:
    """What the timeline's own table says."""
    if timeline == "containers" and settings.containers is not None:
        return durations.parse_duration(settings.containers.step)
    if timeline == "checkouts":
        return durations.parse_duration(settings.checkouts.step)
    return None


def _others() -> tuple[str, ...]:
    """Timelines of third parties."""
    from importlib.metadata import entry_points  # noqa: PLC0415 - slow to import

    return tuple(sorted({e.name for e in entry_points(group=GROUP)} - set(BUILT_IN)))


# DOC-HERE zooming: Zooming: from the changes of a stage to what the next one looks at. Pure.


class Site(msgspec.Struct, frozen=True, kw_only=True):
    """A place where something changed; changes of several metrics between the same two points are looked into once."""

    good: int
    bad: int
    numbers: tuple[int, ...]
    """Of its changes, in the order of the stage's spans."""


def sites(spans: Sequence[Span]) -> tuple[Site, ...]:
    """Places of change, oldest first.

    Those that overlap stay apart: a level that changed across a range of crashes, and the two ends of that range, have
    other neighbours each, and with them other culprits.
    """
    pairs: dict[tuple[int, int], list[int]] = {}
    for number, span in enumerate(spans):
        pairs.setdefault((span.good, span.bad), []).append(number)
    return tuple(Site(good=g, bad=b, numbers=tuple(ns)) for (g, b), ns in sorted(pairs.items()))


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


def alike(one: Span, other: Span) -> bool:
    """Whether a change of a finer stage may be what the coarser one saw: of the same metric, and of the same kind of sides.

    Where failures begin or end, one side has no level; that is no change of level of the metric.
    """
    return _sides(one) == _sides(other)


def _sides(span: Span) -> tuple[str, bool, bool]:
    return span.metric, span.before is None, span.after is None


def shown_in(spans: Sequence[Span], wanted: Sequence[Span]) -> bool:
    """Whether a finer stage saw one of these changes."""
    return any(alike(span, one) for span in spans for one in wanted)


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
