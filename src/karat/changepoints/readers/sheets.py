"""Sheets: what a reader found, before it is put in order: rows with a label and a cell per metric; and reading cells.

Only unambiguous dates are recognised: `08/09/2023` is August to one reader and September to the next, so it is a label.
A time without a zone is read as UTC.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from itertools import takewhile
from pathlib import Path
from typing import Any

import msgspec

from karat.changepoints.series import Better, Outcome
from karat.findings import Finding
from karat.goldens.series_json import text_number

# Besides ISO 8601: what git writes.
_FORMS = ("%Y-%m-%d %H:%M:%S %z", "%a %b %d %H:%M:%S %Y %z")
_SCALES = ((1e8, 1e11, 1.0), (1e11, 1e14, 1e3), (1e14, 1e17, 1e6), (1e17, 1e20, 1e9))
"""Seconds, milliseconds, microseconds and nanoseconds since 1970 do not overlap for a thousand years."""
_YEARS = range(1970, 2101)
_NOTHING = frozenset({"", "-", "--", "na", "n/a", "null", "none", "missing", "<na>"})


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
    table: str = ""
    stage: str = ""
    step: str = "last"  # Of a golden's curves: last, mean, or a step.
    since: str = ""
    better: Mapping[str, Better] = msgspec.field(default_factory=dict)
    """Metric → which direction is better; the empty name is every other metric's."""
    root: Path = Path()  # What paths are seen from.


def parse_date(cell: Any) -> datetime | None:
    """When one cell says it was; with its own zone, or with none. None if it does not say."""
    text = cell.strip() if isinstance(cell, str) else ""
    if len(text) < 8:
        return None
    for form in ("", *_FORMS):
        try:
            # A zone is read where one stands.
            found = datetime.strptime(text, form) if form else datetime.fromisoformat(text)  # noqa: DTZ007
        except ValueError:
            continue
        return found if found.year in _YEARS else None
    return None


def parse_dates(cells: Sequence[Any], *, clock: bool = False) -> list[datetime] | None:
    """When each cell of a column says it was, in UTC; None unless all of them do.

    `clock`: the column is called a time, so that plain numbers are seconds since 1970.
    """
    for read in (since_1970, parse_date) if clock else (parse_date,):
        found = list(takewhile(lambda when: when is not None, map(read, cells)))
        if cells and len(found) == len(cells):
            return [utc(when) for when in found if when is not None]
    return None


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


def is_empty(cell: Any) -> bool:
    return cell is None or (isinstance(cell, str) and cell.strip().lower() in _NOTHING)


def number(cell: Any) -> float | None:
    """The number in a cell, also one that is not finite; None if there is no number."""
    return text_number(cell.strip() if isinstance(cell, str) else cell)


def read_cell(cell: Any) -> Cell:
    """The samples in a cell, or why there are none; BROKEN is a cell that cannot be understood."""
    if is_empty(cell):
        return MISSING
    if isinstance(cell, list | tuple):
        return join_cells(map(read_cell, cell))
    value = number(cell)
    return BROKEN if value is None else number_cell(value)


def number_cell(value: float) -> Cell:
    """A number as samples; one that is not finite is no value, but is not ignored either."""
    if math.isfinite(value):
        return (value,)
    return NoSample(Outcome.CRASH, NOT_A_NUMBER if math.isnan(value) else INFINITE)


def join_cells(cells: Iterable[Cell]) -> Cell:
    """Repeats of one point: all samples, or the gravest reason: a crash, then a hang, then broken, then missing."""
    held = list(cells)
    samples = tuple(value for cell in held if not isinstance(cell, NoSample) for value in cell)
    reasons = [cell for cell in held if isinstance(cell, NoSample)]
    ranks = list(Outcome)
    return samples or min(reasons, key=lambda one: ranks.index(one.outcome), default=MISSING)
