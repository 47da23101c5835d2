"""Skipping: points that hunt.toml says are not to be tried. Pure."""

from __future__ import annotations

import datetime as dt
from collections.abc import Sequence

from msgspec import structs

from karat.hunt.point import Point

REASON = "skipped, as hunt.toml says"


def without(points: Sequence[Point], skip: Sequence[str]) -> tuple[Point, ...]:
    """The points, of which those that are to be skipped say so."""
    left_out = {index for text in skip for index in _matching(points, text)}
    return tuple(
        structs.replace(point, missing=point.missing or REASON) if index in left_out else point
        for index, point in enumerate(points)
    )


def unmatched(points: Sequence[Point], skip: Sequence[str]) -> tuple[str, ...]:
    """Words of `skip` that match no point."""
    return tuple(text for text in skip if not _matching(points, text))


def _matching(points: Sequence[Point], text: str) -> Sequence[int]:
    first, dots, last = (word.strip() for word in text.partition(".."))
    if not dots:
        return [i for i, point in enumerate(points) if text in {point.id, point.label}]
    start, end = _position(points, first, last=False), _position(points, last, last=True)
    return range(start, end + 1) if start is not None and end is not None else ()


def _position(points: Sequence[Point], word: str, *, last: bool) -> int | None:
    """Where a range begins or ends: at a point of that name, or at the first or last one within that time."""
    named = [i for i, point in enumerate(points) if word in {point.id, point.label}]
    if named:
        return named[0]
    moment = _moment(word, end=last)
    if moment is None:
        return None
    if last:
        within = [i for i, p in enumerate(points) if p.when is not None and p.when <= moment]
        return within[-1] if within else None
    within = [i for i, p in enumerate(points) if p.when is not None and p.when >= moment]
    return within[0] if within else None


def _moment(word: str, *, end: bool) -> dt.datetime | None:
    """A day or an instant; a day ends with its last moment."""
    try:
        found = dt.datetime.fromisoformat(word)
    except ValueError:
        return None
    if end and len(word) == len("2023-08-24"):
        found += dt.timedelta(days=1, microseconds=-1)
    return found if found.tzinfo else found.replace(tzinfo=dt.UTC)
