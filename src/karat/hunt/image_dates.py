"""Image dates: a template such as `ghcr.io/nvidia/jax:nightly-{date:%Y-%m-%d}`, and the moments between two ends."""

from __future__ import annotations

import datetime as dt
import re
from collections.abc import Mapping

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
    if step < 1:
        raise UsageError(
            f"containers.step: expected at least a second, found {step:g} s", next_command=_EDIT
        )
    if (end - start).total_seconds() / step > _MOST:
        raise UsageError(
            f"containers: expected at most {_MOST:,} images, found more between {start:%Y-%m-%d} and {end:%Y-%m-%d}",
            next_command=_EDIT,
        )
    each = dt.timedelta(seconds=step)
    return tuple(start + number * each for number in range((end - start) // each + 1))


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


def check_distinct(references: Mapping[str, Reference]) -> None:
    """Refuses two moments that have the same image, as a template without the year gives after a year."""
    names: dict[Reference, str] = {}
    for name, reference in references.items():
        before = names.setdefault(reference, name)
        if before != name:
            raise UsageError(
                f"containers.image: expected an image of its own for each date, "
                f"found {reference.text} for {before} and for {name}",
                next_command=_EDIT,
            )


def name_of(when: dt.datetime, step: float) -> str:
    """What a moment is called: a day, or a day and a time."""
    if when.time() == dt.time(0) and step % _DAY == 0:
        return f"{when:%Y-%m-%d}"
    return f"{when:%Y-%m-%dT%H:%M}" if step % 60 == 0 else f"{when:%Y-%m-%dT%H:%M:%S}"


def in_utc(when: dt.datetime) -> dt.datetime:
    """The same moment in UTC; what has no zone is UTC."""
    try:
        return when.replace(tzinfo=dt.UTC) if when.tzinfo is None else when.astimezone(dt.UTC)
    except OverflowError as error:
        raise UsageError(
            f"containers: expected a time that UTC has as well, found {when}", next_command=_EDIT
        ) from error
