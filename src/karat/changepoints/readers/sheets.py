"""Sheets: what a reader found, before it is put in order: rows with a label and a cell per metric; and reading cells.

Only unambiguous dates are recognised: `08/09/2023` is August to one reader and September to the next, so it is a label.
A time without a zone is read as UTC.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal

import msgspec

from karat.changepoints.series import Better, Outcome
from karat.findings import Finding
from karat.goldens.series_json import text_number

# Besides ISO 8601: what git, mail and spreadsheets write, where it is unambiguous.
_FORMS = (
    "%Y/%m/%d", "%Y/%m/%d %H:%M", "%Y/%m/%d %H:%M:%S", "%d.%m.%Y", "%d.%m.%Y %H:%M", "%d.%m.%Y %H:%M:%S",
    "%Y-%m-%d %H:%M:%S %z", "%a %b %d %H:%M:%S %Y %z", "%a %b %d %H:%M:%S %Y", "%a, %d %b %Y %H:%M:%S %z",
    "%b %d %Y", "%b %d, %Y", "%d %b %Y", "%Y-%m",
)  # fmt: skip
_SCALES = ((1e8, 1e11, 1.0), (1e11, 1e14, 1e3), (1e14, 1e17, 1e6), (1e17, 1e20, 1e9))
"""Seconds, milliseconds, microseconds and nanoseconds since 1970 do not overlap for a thousand years."""
_YEARS = range(1970, 2101)
_NOTHING = frozenset({"", "-", "--", "na", "n/a", "null", "none", "missing", "<na>"})
Nan = Literal["crash", "missing"]
Which = Literal["first", "last", "mean", "median", "min", "max", "all"]


class NoSample(msgspec.Struct, frozen=True):
    """Why a row has no value of a metric."""

    outcome: Outcome
    signature: str = ""


Cell = tuple[float, ...] | NoSample  # Finite samples, or why there are none.
MISSING = NoSample(Outcome.MISSING)
BROKEN = NoSample(Outcome.BROKEN)
NOT_A_NUMBER = "the value is not a number (nan)"
INFINITE = "the value is infinite"


class SheetRow(msgspec.Struct, frozen=True, kw_only=True):
    """One line of a table, one log, one version of a golden."""

    label: str
    cells: Mapping[str, Cell]  # By metric; a metric that is not named is missing.
    at: datetime | float | None = None
    """What rows are ordered by: a moment, or a number; all rows have the same kind, or none has any."""
    when: datetime | None = None
    """When, as far as it is known: a file name without a year orders rows, and does not say when."""
    log: str = ""


class Sheet(msgspec.Struct, frozen=True, kw_only=True):
    """All rows of one source."""

    source: str
    metrics: tuple[str, ...]
    rows: tuple[SheetRow, ...]
    units: Mapping[str, str] = msgspec.field(default_factory=dict)
    better: Mapping[str, Better] = msgspec.field(default_factory=dict)
    findings: tuple[Finding, ...] = ()
    notes: tuple[str, ...] = ()  # How it was understood, in sentences.
    ordered: bool = False
    """Whether the rows stand in their order already (a hunt's points, a history), whatever their moments say."""


class ReadOptions(msgspec.Struct, frozen=True, kw_only=True):
    x: str = ""  # The column of labels; empty: guessed.
    time: str = ""  # The column of moments, by which rows are ordered; empty: guessed.
    metrics: tuple[str, ...] = ()  # Columns, metrics of a golden, or regular expressions for logs; none: all there are.
    which: Which = "last"  # Which match counts, where a log has several.
    name_pattern: str = ""
    """Named groups that read a log's name: date, year, month, day, hour, minute, commit, number, label."""
    year: int | None = None  # Of names that only have month and day.
    table: str = ""
    stage: str = ""
    step: str = "last"  # Of a golden's curves: last, mean, or a step.
    nan: Nan = "crash"
    newest_first: bool = False
    since: str = ""
    until: str = ""
    better: Mapping[str, Better] = msgspec.field(default_factory=dict)
    """Metric → which direction is better; the empty name is every other metric's."""
    root: Path = Path()  # What paths are seen from.


def parse_date(cell: Any) -> datetime | None:
    """When one cell says it was; with its own zone, or with none. None if it does not say."""
    if isinstance(cell, datetime):
        return cell
    text = str(cell).strip() if isinstance(cell, str) else ""
    if not text:
        return None
    return next((found for read in _READERS if (found := read(text)) is not None), None)


def parse_dates(cells: Sequence[Any], *, clock: bool = False) -> list[datetime] | None:
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
    return _all(cells, parse_date)


def _all(cells: Sequence[Any], read: Callable[[Any], datetime | None]) -> list[datetime] | None:
    found: list[datetime] = []
    for cell in cells:
        if (when := read(cell)) is None:
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


def is_empty(cell: Any) -> bool:
    """Whether a cell says that nothing was measured."""
    return cell is None or (isinstance(cell, str) and cell.strip().lower() in _NOTHING)


def number(cell: Any) -> float | None:
    """The number in a cell, also one that is not finite; None if there is no number."""
    return text_number(cell.strip() if isinstance(cell, str) else cell)


def read_cell(cell: Any, *, nan: Nan = "crash") -> Cell:
    """The samples in a cell, or why there are none; BROKEN is a cell that cannot be understood."""
    if is_empty(cell):
        return MISSING
    if isinstance(cell, list | tuple):
        return join_cells([read_cell(item, nan=nan) for item in cell])
    value = number(cell)
    return BROKEN if value is None else number_cell(value, nan=nan)


def number_cell(value: float, *, nan: Nan = "crash") -> Cell:
    """A number as samples; one that is not finite is no value, but is not ignored either."""
    if math.isfinite(value):
        return (value,)
    if nan == "missing":
        return MISSING
    return NoSample(Outcome.CRASH, NOT_A_NUMBER if math.isnan(value) else INFINITE)


def join_cells(cells: Iterable[Cell]) -> Cell:
    """Repeats of one point: all samples, or the gravest reason: a crash, then a hang, then broken, then missing."""
    held = list(cells)
    samples = tuple(value for cell in held if not isinstance(cell, NoSample) for value in cell)
    reasons = [cell for cell in held if isinstance(cell, NoSample)]
    ranks = list(Outcome)
    return samples or min(reasons, key=lambda one: ranks.index(one.outcome), default=MISSING)
