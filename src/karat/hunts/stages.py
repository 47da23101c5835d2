"""Stages, coarse to fine: the words of `stages` understood, and which changes of a stage the next one looks into. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise

import msgspec

from karat.findings import suggest
from karat.hunts.model import Span
from karat.hunts.settings import HuntSettings, Stage, mistake, parse_duration, parse_step

GROUP = "karat.timelines"
BUILT_IN = ("containers", "checkouts", "commits", "packages", "values", "split")


def stages(settings: HuntSettings) -> tuple[Stage, ...]:
    """Every stage, coarse to fine."""
    if not settings.stages:
        raise mistake(f"stages: expected at least one of {', '.join(BUILT_IN)}, found none")
    found = []
    for text in settings.stages:
        timeline, *words = text.split() or [""]
        if timeline not in BUILT_IN:
            from importlib.metadata import entry_points

            theirs = sorted({e.name for e in entry_points(group=GROUP)} - set(BUILT_IN))
            known = (*BUILT_IN, *theirs)
            if timeline not in theirs:
                said = f"no timeline is called {timeline!r}{suggest(timeline, known)} (known: {', '.join(known)})"
                raise mistake(f"stages: {said}")
        step = None
        if words:
            step = parse_step(" ".join(words[1:])) if words[0] == "by" else None
            if step is None:
                raise mistake(f"stages: expected {timeline!r} or '{timeline} by day', found {text!r}")
            # `commits by day` would be checkouts.
            if timeline in BUILT_IN and timeline not in {"containers", "checkouts"}:
                raise mistake(f"stages: expected {timeline!r} without a step, found {text!r}")
        elif timeline == "containers" and settings.containers is not None:
            step = parse_duration(settings.containers.step)
        elif timeline == "checkouts":
            step = parse_duration(settings.checkouts.step)
        found.append(Stage(timeline=timeline, step=step, text=text))
    return tuple(found)


class Site(msgspec.Struct, frozen=True, kw_only=True):
    """A place where something changed; changes of several metrics between the same two points are looked into once."""

    good: int
    bad: int
    numbers: tuple[int, ...]  # Of its changes, in the order of the stage's spans.


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
    first, second = ((s.metric, s.before is None, s.after is None) for s in (one, other))
    return first == second


def shown_in(spans: Sequence[Span], wanted: Sequence[Span]) -> bool:
    """Whether a finer stage saw one of these changes."""
    return any(alike(span, one) for span in spans for one in wanted)


def dips(spans: Sequence[Span], points: int) -> Mapping[int, int]:
    """Change → the number of its dip: one metric left its level, and with the next change came back to it, or failed and recovered.

    Of so many points. A gain that lasted, and was lost again, is no dip: the loss stands.
    """
    paired: dict[int, int] = {}
    # Where failures begin and end is one question, where levels move another.
    series = [(span.metric, span.kind in {"crash", "recovery"}) for span in spans]
    for each in dict.fromkeys(series):
        numbers = [n for n, one in enumerate(series) if one == each]
        numbers.sort(key=lambda n: spans[n].good)
        ends = [0, *(spans[n].bad for n in numbers)], [*(spans[n].good for n in numbers), points - 1]
        lengths = [last - begin + 1 for begin, last in zip(*ends, strict=True)]
        for at, (first, second) in enumerate(pairwise(numbers)):
            if spans[first].kind == "improvement" and 2 * lengths[at + 1] > min(lengths[at], lengths[at + 2]):
                continue
            if (spans[first].kind, spans[second].kind) == ("crash", "recovery"):
                paired[first] = paired[second] = len(set(paired.values()))
            start, low, end = spans[first].before, spans[first].after, spans[second].after
            if first in paired or start is None or low is None or end is None or spans[second].before is None:
                continue
            left, returned = low - start, end - low
            if left * returned < 0 and abs(end - start) <= 0.25 * min(abs(left), abs(returned)):
                paired[first] = paired[second] = len(set(paired.values()))
    return paired
