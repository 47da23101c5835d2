"""Moments: texts and numbers that say when, understood. Pure.

Only forms that mean one thing are taken: `08/09/2023` is August to one reader and September to the next, so it is a
label. A time without a zone is read as UTC.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from typing import Any

_FORMS = (
    "%Y/%m/%d",
    "%Y/%m/%d %H:%M",
    "%Y/%m/%d %H:%M:%S",
    "%d.%m.%Y",
    "%d.%m.%Y %H:%M",
    "%d.%m.%Y %H:%M:%S",
    "%Y-%m-%d %H:%M:%S %z",
    "%a %b %d %H:%M:%S %Y %z",
    "%a %b %d %H:%M:%S %Y",
    "%a, %d %b %Y %H:%M:%S %z",
    "%b %d %Y",
    "%b %d, %Y",
    "%d %b %Y",
    "%Y-%m",
)
"""Besides ISO 8601: what git, mail and spreadsheets write, where it means one thing."""
_SCALES = ((1e8, 1e11, 1.0), (1e11, 1e14, 1e3), (1e14, 1e17, 1e6), (1e17, 1e20, 1e9))
"""Seconds, milliseconds, microseconds and nanoseconds since 1970 do not overlap for a thousand years."""
_YEARS = range(1970, 2101)


def moment(cell: Any) -> datetime | None:
    """When one cell says it was; with its own zone, or with none. None if it does not say."""
    if isinstance(cell, datetime):
        return cell
    text = str(cell).strip() if isinstance(cell, str) else ""
    if not text:
        return None
    return next((found for read in _READERS if (found := read(text)) is not None), None)


def moments(cells: Sequence[Any], *, clock: bool = False) -> list[datetime] | None:
    """When each cell of a column says it was; None unless all of them do, in one form.

    `clock`: the column is called a time, so that plain numbers are seconds since 1970.
    """
    if clock and (counted := _all(cells, since_1970)) is not None:
        return counted
    if any(not isinstance(cell, str) for cell in cells):
        return None
    for read in _READERS:
        found = _all(cells, lambda cell, read=read: read(cell.strip()))  # type: ignore[misc]
        if found is not None:
            return found
    # Several forms in one column: each must be one by itself.
    return _all(cells, moment)


def _all(cells: Sequence[Any], read: Callable[[Any], datetime | None]) -> list[datetime] | None:
    found: list[datetime] = []
    for cell in cells:
        when = read(cell)
        if when is None:
            return None
        found.append(when)
    return found or None


def since_1970(cell: Any) -> datetime | None:
    """A number of seconds, or of thousandths, millionths or billionths of one, since 1970."""
    if isinstance(cell, bool):
        return None
    try:
        number = float(cell)
    except (TypeError, ValueError, OverflowError):
        return None
    for low, high, scale in _SCALES:
        if low <= number < high:
            return datetime.fromtimestamp(number / scale, UTC)
    return None


def utc(when: datetime) -> datetime:
    """The same moment in UTC; without a zone it is read as UTC."""
    try:
        return when.replace(tzinfo=UTC) if when.tzinfo is None else when.astimezone(UTC)
    except OverflowError:  # a moment at the very end of the calendar
        return when.replace(tzinfo=UTC)


def _iso(text: str) -> datetime | None:
    if len(text) < 8 or not text[:4].isdigit():
        return None
    for ending in (" UTC", " GMT"):
        text = text.removesuffix(ending) + ("Z" if text.endswith(ending) else "")
    try:
        found = datetime.fromisoformat(text)
    except ValueError:
        return None
    return found if found.year in _YEARS else None


def _form(form: str) -> Callable[[str], datetime | None]:
    def read(text: str) -> datetime | None:
        try:
            found = datetime.strptime(text, form)  # noqa: DTZ007 - a zone is read where one stands
        except ValueError:
            return None
        return found if found.year in _YEARS else None

    return read


_READERS: tuple[Callable[[str], datetime | None], ...] = (_iso, *map(_form, _FORMS))
