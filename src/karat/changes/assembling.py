"""Assembling: rows put in order, repeats joined, missing nights named, and one series made per metric. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from fnmatch import fnmatchcase

from msgspec import structs

from karat.changes.cells import gravest
from karat.changes.log_names import read_names
from karat.changes.moments import moment, utc
from karat.changes.nights import with_missing
from karat.changes.series import Better, Observation, Outcome, Series
from karat.changes.sheets import MISSING, Mark, ReadOptions, Row, Sheet
from karat.findings import UsageError


def assemble(sheet: Sheet, options: ReadOptions) -> tuple[tuple[Series, ...], tuple[str, ...]]:
    """One series per metric, oldest first, and what was done to get there, in sentences."""
    notes = list(sheet.notes)
    rows, joined = _joined(_ordered(sheet, options))
    if joined:
        notes.append(
            f"{joined:,} label(s) stand more than once; their values are repeats of one point"
        )
    rows = rows if sheet.ordered else with_missing(rows)
    rows = _cut(rows, options)
    made = (_series(sheet, metric, rows, options) for metric in sheet.metrics)
    return tuple(made), tuple(notes)


def _ordered(sheet: Sheet, options: ReadOptions) -> Sequence[Row]:
    rows = sheet.rows
    if not sheet.ordered and rows and all(row.at is not None for row in rows):
        return sorted(rows, key=lambda row: row.at)  # type: ignore[arg-type, return-value] # one kind per sheet
    return rows[::-1] if options.newest_first else rows


def _joined(rows: Sequence[Row]) -> tuple[Sequence[Row], int]:
    """Rows of one label as one row, where the first of them stands."""
    places: dict[str, list[Row]] = {}
    for row in rows:
        places.setdefault(row.label, []).append(row)
    if len(places) == len(rows):
        return rows, 0
    joined = [held[0] if len(held) == 1 else _one(held) for held in places.values()]
    return joined, sum(len(held) > 1 for held in places.values())


def _one(rows: Sequence[Row]) -> Row:
    cells: dict[str, tuple[float, ...] | Mark] = {}
    for metric in dict.fromkeys(name for row in rows for name in row.cells):
        held = [row.cells.get(metric, MISSING) for row in rows]
        samples = tuple(v for cell in held if not isinstance(cell, Mark) for v in cell)
        cells[metric] = samples or gravest([cell for cell in held if isinstance(cell, Mark)])
    return structs.replace(rows[0], cells=cells)


def _cut(rows: Sequence[Row], options: ReadOptions) -> Sequence[Row]:
    """The rows from --since to --until, both included."""
    first, last = 0, len(rows)
    if options.since:
        first = _place(rows, options.since, "--since")
    if options.until:
        last = _place(rows, options.until, "--until", after=True)
    return rows[first:last]


def _place(rows: Sequence[Row], text: str, option: str, *, after: bool = False) -> int:
    """Where a label or a moment cuts the rows: before it, or after it."""
    for n, row in enumerate(rows):
        if row.label == text:
            return n + 1 if after else n
    when = moment(text) or _day(rows, text)
    moments = [row.at for row in rows if isinstance(row.at, datetime)]
    if when is None or len(moments) != len(rows) or not rows:
        ends = f"{rows[0].label} … {rows[-1].label}" if rows else "no points"
        raise UsageError(
            f"expected {option} to be a label or a moment of the series ({ends}), found {text!r}",
            next_command="karat changes --help",
        )
    limit = utc(when)
    if after:
        # A day without an hour is meant to its end.
        limit += timedelta(days=1) if len(text.strip()) <= 10 else timedelta(microseconds=1)
    return sum(one < limit for one in moments)


def _day(rows: Sequence[Row], text: str) -> datetime | None:
    """Month and day, among logs whose names say no more."""
    if any(row.when is not None for row in rows):
        return None
    name = read_names([text]).found.get(text)
    return name.at if name is not None else None


def _series(sheet: Sheet, metric: str, rows: Sequence[Row], options: ReadOptions) -> Series:
    return Series(
        metric=metric,
        observations=tuple(_observation(row, metric) for row in rows),
        better=direction(metric, options) or sheet.better.get(metric),
        unit=sheet.units.get(metric, ""),
        source=sheet.source,
    )


def _observation(row: Row, metric: str) -> Observation:
    cell = row.cells.get(metric, MISSING)
    if isinstance(cell, Mark):
        return Observation(
            label=row.label,
            outcome=cell.outcome,
            signature=cell.signature,
            when=row.when,
            log=row.log,
        )
    return Observation(label=row.label, outcome=Outcome.OK, values=cell, when=row.when, log=row.log)


def direction(metric: str, options: ReadOptions) -> Better | None:
    """What --better says of a metric: by its name, by a glob, or for all others."""
    if metric in options.better:
        return options.better[metric]
    fits = (better for glob, better in options.better.items() if glob and fnmatchcase(metric, glob))
    return next(fits, options.better.get(""))
