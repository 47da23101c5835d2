"""Nights: points that a regular series should have, and has not. Pure.

A series by the day (or hour, or week) says itself which days it lacks; a day of the week on which it never has a point
is no night that is missing.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from datetime import datetime, timedelta
from itertools import pairwise

from karat.changes.sheets import Row

_FORMS = ("%Y-%m-%d", "%m-%d", "%Y-%m-%d-%H", "%m-%d-%H", "%Y%m%d", "%Y-%m-%dT%H:%M:%SZ", "%Y-%m-%d %H:%M:%S",
          "%Y-%m-%d %H:%M", "%Y-%m-%dT%H:%M:%S", "%Y-%m-%dT%H:%M", "%Y/%m/%d", "%d.%m.%Y", "%m_%d", "%Y_%m_%d")  # fmt: skip
_LEAST = 5
_SLACK = 0.05
"""Of a step: a night that began an hour late, or when clocks were changed, is still that night's."""
_HOUR, _DAY = 3600.0, 86400.0


def with_missing(rows: Sequence[Row]) -> tuple[Row, ...]:
    """The rows, and one without a value for each that is missing among them; the same where none can be named."""
    moments = [row.at for row in rows if isinstance(row.at, datetime)]
    if len(moments) != len(rows):
        return tuple(rows)
    step = regular_step(moments)
    form = _form(rows, moments)
    if step is None or not form:
        return tuple(rows)
    if step % _DAY == 0 and "%H" in form:
        form = "%Y-%m-%d"  # the hour of a night that was not is nobody's to say
    idle = _idle_days(moments, step)
    out: list[Row] = []
    for row, moment in zip(rows, moments, strict=True):
        if out:
            out += _between(out[-1], moment, step, form, idle)
        out.append(row)
    # One date that is far off would invent a thousand nights.
    return tuple(out) if len(out) <= 3 * len(rows) + 14 else tuple(rows)


def regular_step(moments: Sequence[datetime]) -> float | None:
    """The seconds between neighbours, if nearly all are one step apart and all are whole steps apart."""
    apart = [(b - a).total_seconds() for a, b in pairwise(moments) if b > a]
    if len(apart) + 1 < _LEAST:
        return None
    common = Counter(round(seconds / 60) * 60.0 for seconds in apart if seconds >= 30).most_common(
        3
    )
    if not common:
        return None
    candidates = [_HOUR, _DAY, 7 * _DAY, *(seconds for seconds, _ in common)]
    step = max(candidates, key=lambda one: sum(abs(s / one - 1) <= _SLACK for s in apart))
    steps = [seconds / step for seconds in apart]
    off = [abs(n - round(n)) if round(n) else 1.0 for n in steps]
    single = sum(round(n) == 1 for n in steps)
    return step if max(off) <= _SLACK and 2 * single > len(steps) else None


def _form(rows: Sequence[Row], moments: Sequence[datetime]) -> str:
    """How the rows' labels write their moments; empty if they do not."""
    for form in _FORMS:
        fits = sum(
            moment.strftime(form) == row.label for row, moment in zip(rows, moments, strict=True)
        )
        if fits >= 0.8 * len(rows):
            return form
    return ""


def _idle_days(moments: Sequence[datetime], step: float) -> frozenset[int]:
    """Days of the week that never have a point, over two weeks at least."""
    if step != _DAY or (moments[-1] - moments[0]).days < 14:
        return frozenset()
    return frozenset(range(7)) - {moment.weekday() for moment in moments}


def _between(
    before: Row, moment: datetime, step: float, form: str, idle: frozenset[int]
) -> list[Row]:
    """The rows that should stand between two neighbours."""
    if not isinstance(before.at, datetime):
        return []
    count = round((moment - before.at).total_seconds() / step) - 1
    found = []
    for n in range(1, min(count, 100_000) + 1):
        at = before.at + timedelta(seconds=n * step)
        if at.weekday() not in idle:
            when = at if before.when is not None else None
            found.append(Row(label=at.strftime(form), cells={}, at=at, when=when))
    return found
