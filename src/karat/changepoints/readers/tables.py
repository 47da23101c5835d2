"""Tables: CSV with or without a header, JSON, JSON Lines; and SQLite. Which column of one has labels, which has dates, and
which are metrics.

A database is the journal of a hunt, or any table; it is opened read-only, also while somebody writes.
"""

from __future__ import annotations

import csv
import io
import json
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from datetime import datetime
from fnmatch import fnmatchcase
from functools import partial
from itertools import groupby, pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_args
from urllib.parse import quote

import msgspec

from karat.changepoints.readers import sheets
from karat.changepoints.readers.sheets import Cell, NoSample, ReadOptions, Sheet, SheetRow
from karat.changepoints.series import Better, Outcome, no_such, wrong_usage
from karat.findings import CannotVerify, Finding, Severity, warn
from karat.goldens.text_file import BOM, LimitedFindings
from karat.report.words import few
from karat.system.command import Command

if TYPE_CHECKING:
    from sqlite3 import Connection

_TIMES = ("timestamp", "datetime", "date", "time", "when", "at", "night", "day", "created", "created_at", "commit_date")
_LABELS = (
    "label", "commit", "sha", "git_commit", "revision", "rev", "hash", "version", "release", "tag", "build", "image",
    "point", "name", "id", "run", "run_id",
)  # fmt: skip
_COUNTERS = ("step", "iteration", "iter", "index", "n", "#", "i", "x", "number", "epoch")
_SHA = re.compile(r"[0-9a-f]{40}|[0-9a-f]{64}")
_SHORT = 10
_NAMED = 8
_FEWEST = 5  # rows of which one can tell that a column only counts them


class SourceTable(msgspec.Struct, frozen=True, kw_only=True):
    """A table as it was read: names, rows of cells, and on which line each row stood."""

    source: str
    names: tuple[str, ...]
    rows: Sequence[Sequence[Any]]
    lines: Sequence[int] = ()
    units: Mapping[str, str] = msgspec.field(default_factory=dict)
    findings: tuple[Finding, ...] = ()

    def fits(self, wanted: str) -> list[int]:
        return [at for at, n in enumerate(self.names) if n == wanted or fnmatchcase(n, wanted)]

    def named(self, name: str, option: str) -> int:
        if name in self.names:
            return self.names.index(name)
        raise no_such(option, f"name a column of {self.source}", name, self.names)

    def column(self, at: int) -> list[Any]:
        return [row[at] for row in self.rows]

    def base(self, at: int) -> str:
        """The name of a column without the records that it was found in."""
        return self.names[at].rpartition(".")[2].strip().lower()

    def place(self, row: int) -> str:
        return f"line {self.lines[row]}" if self.lines else f"record {row + 1}"

    def unread(self, row: int, at: int) -> Finding:
        name, where = self.names[at], self.place(row)
        said = f"expected a number in column {name!r} on {where}, found {str(self.rows[row][at])[:40]!r}"
        message = f"{said}; the point counts as one that could not be tried"
        return warn("unreadable", message, path=self.source, metric=name, where=where)


def read_table(table: SourceTable, options: ReadOptions) -> Sheet:
    """What each column is: an option says it, else a telling name, else the cells."""
    asked = list(dict.fromkeys(at for m in options.metrics for at in table.fits(m) or [table.named(m, "--metric")]))
    free = [at for at in range(len(table.names)) if at not in asked]
    time, moments = _time(table, options, free)
    x = table.named(options.x, "--x") if options.x else _labels(table, free, time)
    others = [at for at in free if at not in {x, time}]
    numeric = [at for at in others if _is_metric(table, at)]
    metrics = asked or [at for at in numeric if not _counts_rows(table, at)] or numeric
    notes = []
    if not options.x and x is not None and x != time:
        notes.append(f"labels are column {table.names[x]!r} (--x names another)")
    if time is not None and time != x:
        notes.append(f"ordered by column {table.names[time]!r} (--time names another)")
    left = [repr(table.names[at]) for at in others if at not in metrics]
    if left and not asked:
        notes.append(f"left out, as they count rows or hold no plain numbers: {few(left, _NAMED)}")
    odd = LimitedFindings()
    found = [{table.names[at]: sheets.read_cell(row[at]) for at in metrics} for row in table.rows]
    for n, cells in enumerate(found):
        for at in metrics:
            if cells[table.names[at]] is sheets.BROKEN:
                odd.note("unreadable", Severity.WARN, partial(table.unread, n, at))
    labels = _texts(table, x, moments if x == time else None)
    order = moments or _counted(table, x) or [None] * len(labels)
    rows = [
        SheetRow(label=label, cells=cells, at=at, when=at if isinstance(at, datetime) else None)
        for label, cells, at in zip(labels, found, order, strict=True)
    ]
    return Sheet(
        source=table.source,
        metrics=tuple(table.names[at] for at in metrics),
        rows=tuple(rows),
        units=table.units,
        findings=(*table.findings, *odd.findings()),
        notes=tuple(notes),
    )


def _time(table: SourceTable, options: ReadOptions, free: Sequence[int]) -> tuple[int | None, list[datetime] | None]:
    """The column that says when each row was, and what it says, in UTC."""
    wanted = [table.named(options.time, "--time")] if options.time else sorted(free, key=partial(_rank, table, _TIMES))
    for at in wanted:
        clock = bool(options.time) or table.base(at) in _TIMES
        moments = sheets.parse_dates(table.column(at), clock=clock)
        if moments is not None:
            return at, moments
    if options.time:
        cells = enumerate(table.column(wanted[0]))
        odd = (f"{str(c)[:40]!r} on {table.place(n)}" for n, c in cells if sheets.parse_dates([c], clock=True) is None)
        raise wrong_usage(
            f"expected every cell of column {options.time!r} of {table.source} to say when,"
            f" as 2023-08-24, 2023-08-24T13:00Z or seconds since 1970; found {next(odd, 'a mixture of forms')}"
        )
    return None, None


def _rank(table: SourceTable, wanted: Sequence[str], at: int) -> int:
    return wanted.index(table.base(at)) if table.base(at) in wanted else len(wanted)


def _labels(table: SourceTable, free: Sequence[int], time: int | None) -> int | None:
    """The column of labels: one with a telling name, else that of moments, else one that counts, else one of texts."""
    telling = [at for at in sorted(free, key=partial(_rank, table, _LABELS)) if table.base(at) in _LABELS]
    counting = [at for at in free if table.base(at) in _COUNTERS and _counted(table, at)]
    texts = [at for at in free if all(sheets.number(cell) is None for cell in table.column(at))]
    for at in (*telling, *([] if time is None else [time]), *counting, *texts):
        cells = [str(cell) for cell in table.column(at) if not sheets.is_empty(cell)]
        # It has another word for most rows: a branch's name labels nothing.
        if at == time or (2 * len(cells) > len(table.rows) and 2 * len(set(cells)) > len(cells)):
            return at
    return None


def _counted(table: SourceTable, at: int | None) -> list[float] | None:
    """The whole numbers of a column that has nothing else, and another one for most rows."""
    found = [] if at is None else [sheets.number(cell) for cell in table.column(at)]
    whole = [value for value in found if value is not None and value.is_integer()]
    return whole if whole and len(whole) == len(found) and 2 * len(set(whole)) > len(whole) else None


def _is_metric(table: SourceTable, at: int) -> bool:
    """Whether most cells that hold something hold numbers, and not moments."""
    held = [cell for cell in table.column(at) if not sheets.is_empty(cell) and not isinstance(cell, bool)]
    numbers = sum(sheets.read_cell(cell) is not sheets.BROKEN for cell in held)
    is_clock = table.base(at) in _TIMES and sheets.parse_dates(held, clock=True) is not None
    return numbers > 0 and 2 * numbers > len(held) and not is_clock


def _counts_rows(table: SourceTable, at: int) -> bool:
    """Whether each number of a column is as much above the one before."""
    found = [sheets.number(cell) for cell in table.column(at)]
    apart = {b - a for a, b in pairwise(found) if a is not None and b is not None}
    return len(found) >= _FEWEST and None not in found and len(apart) == 1 and min(apart) > 0


def _texts(table: SourceTable, x: int | None, moments: Sequence[datetime] | None) -> list[str]:
    """The labels of the rows."""
    if x is None:
        return [str(n) for n in range(1, len(table.rows) + 1)]
    cells = ["" if sheets.is_empty(cell) else str(cell).strip() for cell in table.column(x)]
    if moments is not None:
        # A date is its own label, 20230824 too; a number of seconds is written out.
        pairs = zip(cells, moments, strict=True)
        return [c if sheets.number(c) is None or len(c) == 8 else f"{when:%Y-%m-%dT%H:%M:%SZ}" for c, when in pairs]
    return [cell[:_SHORT] if _SHA.fullmatch(cell) else cell or f"({table.place(n)})" for n, cell in enumerate(cells)]


_DEEPEST = 6
_MOST = 400  # columns that are taken unless --metric names some


def read_csv(data: bytes, source: str) -> tuple[SourceTable, ...]:
    """The table in CSV, or none."""
    if b"\0" in data[:65536]:
        return ()
    text = data.removeprefix(BOM).decode("utf-8", "replace")
    odd = LimitedFindings()
    rows = list(_rows(text, odd, source))
    if not rows:
        return ()
    names, body = [cell.strip() for cell in rows[0][1]], rows
    # A header has no number in it. A single line is one only if it has several fields: else it is one word of whatever the file is.
    if any(sheets.number(cell) is not None for cell in names) or (len(rows) == 1 and len(names) == 1):
        names = ["value"] if len(names) == 1 else [f"column {n}" for n in range(1, len(names) + 1)]
    else:
        seen, body = Counter(names), rows[1:]
        named = (cell if cell and seen[cell] == 1 else f"{cell} column {n}" for n, cell in enumerate(names, 1))
        names = [name.strip() for name in named]
    width = len(names)
    for line, row in body:
        if len(row) != width:
            said = f"expected {width} fields on line {line}, found {len(row)}; absent cells are missing points"
            odd.add(warn("ragged-row", said, path=source, where=f"line {line}"))
    lines, fields = [line for line, _ in body], [(row + [""] * width)[:width] for _, row in body]
    return (SourceTable(source=source, names=tuple(names), rows=fields, lines=lines, findings=odd.findings()),)


def _rows(text: str, odd: LimitedFindings, source: str) -> Iterator[tuple[int, list[str]]]:
    """Rows that are not empty, with their line numbers. What the first of them has most of parts the fields."""
    head = next((line for line in text.splitlines() if line.strip() and line[0] != "#"), "")
    delimiter = max(",;\t|", key=head.count)
    reader = csv.reader(io.StringIO(text, newline=""), delimiter=delimiter, skipinitialspace=True)
    while True:
        try:
            row = next(reader, None)
        except csv.Error as error:
            where = f"line {reader.line_num}"
            odd.add(warn("unreadable", f"expected CSV on {where}, found {error}", path=source, where=where))
            continue
        if row is None:
            return
        if any(cell.strip() for cell in row) and not row[0].lstrip().startswith("#"):
            yield reader.line_num, row


def read_json(data: bytes, source: str) -> tuple[SourceTable, ...]:
    """The tables in a JSON document: one, or the lists of records in an object, as {"results": [...]}; none if it holds none."""
    value = _parse_json(data)
    if isinstance(value, dict) and any(map(_is_records, value.values())):
        found = {key: item for key, item in value.items() if _is_records(item)}
        several = len(found) > 1
        return tuple(_of_records(item, f"{source} {key}" if several else source) for key, item in found.items())
    if _is_records(value):
        return (_of_records(value, source),)
    if not value or not isinstance(value, dict | list):
        return ()
    plain = value.values() if isinstance(value, dict) else value
    if any(isinstance(item, dict | list) for item in plain):
        return ()
    if isinstance(value, dict):
        return (SourceTable(source=source, names=("label", "value"), rows=list(value.items())),)
    return (SourceTable(source=source, names=("value",), rows=[(item,) for item in value]),)


def _is_records(value: Any) -> bool:
    return isinstance(value, list) and bool(value) and all(isinstance(v, dict) for v in value)


def _parse_json(data: bytes) -> Any:
    """The JSON value in the bytes, with the NaN and Infinity that Python writes; None if there is none."""
    try:
        return json.loads(data.removeprefix(BOM))
    except (ValueError, RecursionError):
        return None


def read_lines(data: bytes, source: str) -> tuple[SourceTable, ...]:
    """The table in JSON Lines; none unless most lines are objects."""
    odd = LimitedFindings()
    held = {line: raw for line, raw in enumerate(data.removeprefix(BOM).splitlines(), 1) if raw.strip()}
    parsed = {line: _parse_json(raw) for line, raw in held.items() if raw.lstrip().startswith(b"{")}
    records = {line: found for line, found in parsed.items() if found and isinstance(found, dict)}
    if not records or 2 * len(records) < len(held):
        return ()
    for line in sorted(held.keys() - records.keys()):
        found = held[line][:40].decode("utf-8", "replace")
        said = f"expected a JSON object on line {line}, found {found!r}; it was left out"
        odd.add(warn("unreadable", said, path=source, where=f"line {line}"))
    return (_of_records([*records.values()], source, lines=[*records], findings=odd.findings()),)


def _of_records(
    records: Sequence[Mapping[str, Any]], source: str, *, lines: Sequence[int] = (), findings: tuple[Finding, ...] = ()
) -> SourceTable:
    units: dict[str, str] = {}
    flat = [dict(_fields(record, units, "", 0)) for record in records]
    names = list(dict.fromkeys(name for record in flat for name in record))[:_MOST]
    rows = [tuple(record.get(name) for name in names) for record in flat]
    return SourceTable(source=source, names=tuple(names), rows=rows, lines=lines, units=units, findings=findings)


def _fields(value: Mapping[str, Any], units: dict[str, str], prefix: str, depth: int) -> Iterator[tuple[str, Any]]:
    """Fields by their path; a list of {name, value, unit} is a metric each."""
    for key, item in value.items():
        name = f"{prefix}{key}"
        if isinstance(item, dict) and depth < _DEEPEST:
            yield from _fields(item, units, "" if key == "metrics" else f"{name}.", depth + 1)
        elif _is_records(item) and all(isinstance(entry.get("name"), str) and "value" in entry for entry in item):
            for entry in item:
                if isinstance(entry.get("unit"), str):
                    units[str(entry["name"])] = entry["unit"]
                yield str(entry["name"]), entry["value"]
        else:
            yield name, item


_VIEW = "series"
_JOURNAL = ("stage", "position", "label", "at", "metric", "value", "outcome", "signature")


def read_database(path: Path, source: str, options: ReadOptions) -> tuple[SourceTable | Sheet, ...]:
    """One sheet per stage of a hunt, or the table that was asked for."""
    import sqlite3

    from karat.system.foreign import sqlite

    try:
        with closing(sqlite3.connect(f"file:{quote(str(path.absolute()))}?mode=ro", uri=True)) as connection:
            sqlite.guard(connection)
            found = sqlite.rows(connection, "SELECT name FROM sqlite_master WHERE type IN ('table', 'view')")
            names = [name for (name,) in found if isinstance(name, str) and not name.startswith("sqlite_")]
            table = options.table or (_VIEW if _VIEW in names or len(names) != 1 else names[0])
            if not options.table and table not in names:
                there = ", ".join(names[:20]) or "none"
                raise wrong_usage(f"expected --table to say which table of {source} is meant, found {there}")
            if table not in names:
                raise no_such("--table", f"name a table of {source}", table, names)
            columns = [str(row[1]) for row in sqlite.rows(connection, f"PRAGMA table_info({_quoted(table)})")]
            if table == _VIEW and set(_JOURNAL) <= set(columns):
                return tuple(_journal(connection, source, options))
            if options.stage:
                raise wrong_usage(f"expected the journal of a hunt for --stage, found the table {table!r} of {source}")
            rows = sqlite.rows(connection, f"SELECT * FROM {_quoted(table)}")  # noqa: S608 - a name from the database
            return (SourceTable(source=f"{source}:{table}", names=tuple(columns), rows=rows),)
    except sqlite3.Error as error:
        said = f"expected to read the SQLite database {source}, but: {error}"
        raise CannotVerify(said, next_command=Command("sqlite3", source, "PRAGMA integrity_check")) from error


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def _journal(connection: Connection, source: str, options: ReadOptions) -> Iterator[Sheet]:
    """A sheet for each stage; its metrics are those of the hunt, in its order."""
    from karat.system.foreign import sqlite

    listed = sqlite.rows(connection, "SELECT name, better, unit FROM metrics ORDER BY rowid")
    settings = {str(name): (better, str(unit or "")) for name, better, unit in listed}
    if odd := next((name for name in options.metrics if name not in settings), None):
        raise no_such("--metric", f"be a metric of {source}", odd, list(settings))
    metrics = tuple(name for name in settings if not options.metrics or name in options.metrics)
    query = f"SELECT {', '.join(_JOURNAL)} FROM {_VIEW} ORDER BY stage, position"  # noqa: S608 - our own names
    found = sqlite.rows(connection, query)
    stages = list(dict.fromkeys(str(row[0]) for row in found))
    if options.stage and options.stage not in stages:
        raise no_such("--stage", "be a stage of the hunt", options.stage, stages)
    for stage in [options.stage] if options.stage else stages:
        points = groupby((row for row in found if str(row[0]) == stage), key=lambda row: row[1])
        yield Sheet(
            source=f"{source} stage {stage}",
            metrics=metrics,
            rows=tuple(_point([*rows], metrics, source) for _, rows in points),
            units={name: settings[name][1] for name in metrics},
            better={name: better for name in metrics if (better := settings[name][0]) in get_args(Better)},
            ordered=True,
        )


def _point(rows: Sequence[Sequence[Any]], metrics: Sequence[str], source: str) -> SheetRow:
    """All attempts at one point of a hunt."""
    stage, _, label, at, *_ = rows[0]
    cells: dict[str, list[Cell]] = {name: [] for name in metrics}
    for *_, metric, value, outcome, signature in rows:
        kind = Outcome(outcome) if outcome in set(Outcome) else Outcome.BROKEN
        none = NoSample(Outcome.MISSING if kind is Outcome.OK else kind, str(signature or ""))
        cells.get(str(metric), []).append(none if value is None else sheets.read_cell(value))
    when = sheets.parse_date(at)
    joined = {name: sheets.join_cells(held) for name, held in cells.items()}
    log = Command("karat", "hunt", "show", str(label), "--stage", str(stage), "--journal", source)
    return SheetRow(label=str(label), cells=joined, when=None if when is None else sheets.utc(when), log=log)
