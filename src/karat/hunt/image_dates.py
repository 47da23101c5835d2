"""Image dates: a template such as `ghcr.io/nvidia/jax:nightly-{date:%Y-%m-%d}`, and the moments between two ends."""

from __future__ import annotations

import datetime as dt
import re
from collections.abc import Iterator

from karat.findings import UsageError
from karat.hunt.image_reference import Reference, parse

_DATE = re.compile(r"\{date(?::([^{}]*))?\}")
_DAY = 86400.0
_MOST = 100_000
_EDIT = "edit hunt.toml"


def image_at(template: str, when: dt.datetime) -> Reference:
    """The image of a moment."""
    text = _DATE.sub(lambda found: when.strftime(found[1] or "%Y-%m-%d"), template)
    return parse(text)


def moments(start: dt.datetime, end: dt.datetime, step: float) -> tuple[dt.datetime, ...]:
    """Every moment from the start to the end, both included where the step leads there."""
    start, end = in_utc(start), in_utc(end)
    if end < start:
        raise UsageError(
            f"containers: expected an end after the start, {start:%Y-%m-%d %H:%M}, found {end:%Y-%m-%d %H:%M}",
            next_command=_EDIT,
        )
    if step <= 0:
        raise UsageError("containers.step: expected more than nothing", next_command=_EDIT)
    if (end - start).total_seconds() / step > _MOST:
        raise UsageError(
            f"containers: expected at most {_MOST:,} images, found more between {start:%Y-%m-%d} and {end:%Y-%m-%d}",
            next_command=_EDIT,
        )
    return tuple(_stepped(start, end, dt.timedelta(seconds=step)))


def check_template(template: str, step: float) -> None:
    """Refuses a template without a date, or whose date is coarser than the step."""
    rest = _DATE.sub("", template)
    if rest == template or "{" in rest or "}" in rest:
        raise UsageError(
            "containers.image: expected a date in it, such as nightly-{date:%Y-%m-%d}, "
            f"found {template!r}",
            next_command=_EDIT,
        )
    first = dt.datetime(2023, 8, 24, tzinfo=dt.UTC)
    if image_at(template, first) == image_at(template, first + dt.timedelta(seconds=step)):
        raise UsageError(
            f"containers.image: expected a date that tells images apart which are {step:g} s from each other, "
            f"found {template!r}; a longer step, or the hour in the date (%H), would do",
            next_command=_EDIT,
        )


def name_of(when: dt.datetime, step: float) -> str:
    """What a moment is called: a day, or a day and a time."""
    midnight = when.time() == dt.time(0)
    return f"{when:%Y-%m-%d}" if midnight and step % _DAY == 0 else f"{when:%Y-%m-%dT%H:%M}"


def in_utc(when: dt.datetime) -> dt.datetime:
    """The same moment in UTC; what has no zone is UTC."""
    return when.replace(tzinfo=dt.UTC) if when.tzinfo is None else when.astimezone(dt.UTC)


def _stepped(start: dt.datetime, end: dt.datetime, step: dt.timedelta) -> Iterator[dt.datetime]:
    now = start
    while now <= end:
        yield now
        now += step
