"""Tables: CSV with any delimiter and with or without a header, JSON, JSON Lines; and SQLite.

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
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import msgspec

from karat.changepoints.readers import sheets
from karat.changepoints.readers.columns import SourceTable
from karat.changepoints.readers.sheets import Cell, NoSample, ReadOptions, Sheet, SheetRow
from karat.changepoints.series import Better, Outcome, no_such, wrong_usage
from karat.findings import CannotVerify, Finding, warn
from karat.goldens.text_file import BOM, LimitedFindings
from karat.system.command import Command

if TYPE_CHECKING:
    from sqlite3 import Connection

_LOOKED_AT = 50
_ASSIGNED = re.compile(rb"(?:(?:var|let|const)\s+)?[A-Za-z_][\w.]{0,100}\s*=\s*(?=[{\[])")
"""What precedes the document in a script: github-action-benchmark keeps `window.BENCHMARK_DATA = {…}`."""
_DEEPEST = 6
_MOST = 400  # columns that are taken unless --metric names some


def decode(data: bytes) -> str:
    """The text of a file, whatever its encoding; bytes that are no text come out as odd letters."""
    if data[:2] in {b"\xff\xfe", b"\xfe\xff"}:
        return data.decode("utf-16", "replace")
    try:
        return data.removeprefix(BOM).decode("utf-8")
    except UnicodeDecodeError:  # what spreadsheets in western Europe write
        return data.decode("cp1252", "replace")


def read_csv(data: bytes, source: str) -> SourceTable | None:
    """The table in the bytes; None if they hold none."""
    if b"\0" in data[:65536] and data[:2] not in {b"\xff\xfe", b"\xfe\xff"}:
        return None
    text = decode(data)
    delimiter = delimiter_of(text)
    odd = LimitedFindings()
    rows = list(_rows(text, delimiter, odd, source))
    if not rows:
        return None
    names, first = _header(rows, commented=_commented(text, delimiter))
    width = len(names)
    for line, row in rows[first:]:
        if len(row) != width:
            said = f"expected {width} fields on line {line}, found {len(row)}; absent cells are missing points"
            odd.add(warn("ragged-row", said, path=source, where=f"line {line}"))
    return SourceTable(
        source=source,
        names=tuple(names),
        rows=[(row + [""] * width)[:width] for _, row in rows[first:]],
        lines=[line for line, _ in rows[first:]],
        decimal_comma=delimiter == ";",
        findings=odd.findings(),
    )


def delimiter_of(text: str) -> str:
    """The delimiter that gives the first lines the same number of fields, and the most of them."""
    lines = [line for line in text.split("\n", _LOOKED_AT)[:_LOOKED_AT] if line.strip() and line[:1] != "#"]
    best, score = ",", 0
    for delimiter in ",;\t|":
        widths = Counter(len(row) for row in _parsed(lines, delimiter))
        if widths:
            width, times = widths.most_common(1)[0]
            if width > 1 and times * 2 > len(lines) and times * width > score:
                best, score = delimiter, times * width
    return best


def _parsed(lines: list[str], delimiter: str) -> list[list[str]]:
    try:
        return list(csv.reader(lines, delimiter=delimiter, skipinitialspace=True))
    except csv.Error:
        return []


def _rows(text: str, delimiter: str, odd: LimitedFindings, source: str) -> Iterator[tuple[int, list[str]]]:
    """Rows that are not empty, with their line numbers."""
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


def _header(rows: list[tuple[int, list[str]]], *, commented: list[str]) -> tuple[list[str], int]:
    """The names of the columns, and where the rows begin: a header has no number in it."""
    first = [cell.strip() for cell in rows[0][1]]
    # A single line is a header only if it has several fields: else it is one word of whatever the file is.
    is_header = not any(sheets.number(cell) is not None for cell in first)
    if is_header and (len(rows) > 1 or len(first) > 1):
        return _unique([cell or f"column {n}" for n, cell in enumerate(first, 1)]), 1
    if len(commented) == len(first):
        return _unique(commented), 0
    return (["value"] if len(first) == 1 else [f"column {n}" for n in range(1, len(first) + 1)]), 0


def _commented(text: str, delimiter: str) -> list[str]:
    """The fields of the last comment before the first row, which may be a header."""
    found: list[str] = []
    for line in text.split("\n", _LOOKED_AT)[:_LOOKED_AT]:
        if line.strip() and not line.startswith("#"):
            break
        parsed = _parsed([line.lstrip("# ")], delimiter)
        found = [cell.strip() for row in parsed for cell in row] or found
    return found


def _unique(names: list[str]) -> list[str]:
    seen: Counter[str] = Counter()
    out = []
    for name in names:
        seen[name] += 1
        out.append(name if seen[name] == 1 else f"{name} ({seen[name]})")
    return out


def read_json(data: bytes, source: str) -> tuple[SourceTable, ...]:
    """The tables in a JSON document, or in a script that assigns one; none if it holds none."""
    text = data.removeprefix(BOM).strip()
    script = _ASSIGNED.match(text[:200])
    if script:
        text = text[script.end() :].rstrip(b" \t\r\n;")
    if text[:1] not in {b"{", b"["}:
        return ()
    value = parse_json(text)
    table = table_of(value, source)
    if table is not None:
        return (table,)
    return tuple(_inner_tables(value, source)) if isinstance(value, dict) else ()


def _inner_tables(document: dict[str, Any], source: str) -> Iterator[SourceTable]:
    """The lists of records in a document around them, at the first depth that has any: {"results": [...]}."""
    level: list[tuple[str, Any]] = [("", document)]
    for _ in range(_DEEPEST):
        level = [
            (f"{path}.{key}" if path else key, item)
            for path, held in level
            if isinstance(held, dict)
            for key, item in held.items()
        ]
        lists = [(path, item) for path, item in level if _is_records(item)]
        for path, item in lists:
            table = _of_records(item, source if len(lists) == 1 else f"{source} {path}")
            if table is not None:
                yield table
        if lists:
            return


def _is_records(value: Any) -> bool:
    return isinstance(value, list) and bool(value) and all(isinstance(v, dict) for v in value)


def parse_json(data: bytes) -> Any:
    """The JSON value in the bytes; None if there is none."""
    # The second parser takes the NaN and Infinity that Python writes, which are no JSON.
    for parse in (msgspec.json.decode, json.loads):
        try:
            return parse(data.removeprefix(BOM))
        except (ValueError, RecursionError):
            continue
    return None


def read_lines(data: bytes, source: str) -> SourceTable | None:
    """The table in JSON Lines; None unless most lines are objects."""
    odd = LimitedFindings()
    records: list[Any] = []
    lines: list[int] = []
    bad = 0
    for line, raw in enumerate(data.removeprefix(BOM).splitlines(), 1):
        if not raw.strip():
            continue
        record = parse_json(raw)
        if isinstance(record, dict):
            records.append(record)
            lines.append(line)
            continue
        bad += 1
        said = f"expected a JSON object on line {line}, found {raw[:40].decode('utf-8', 'replace')!r}; it was left out"
        odd.add(warn("unreadable", said, path=source, where=f"line {line}"))
        if bad > 20 and bad > len(records):
            return None
    if not records or bad > len(records):
        return None
    return _of_records(records, source, lines=lines, findings=odd.findings())


def table_of(value: Any, source: str) -> SourceTable | None:
    if isinstance(value, dict):  # label → value, label → record, or name → list
        items = list(value.values())
        lists = bool(items) and all(isinstance(i, list) and len(i) == len(items[0]) for i in items)
        if lists and not any(isinstance(c, dict | list) for held in items for c in held[:100]):
            rows = list(zip(*items, strict=True))
            return SourceTable(source=source, names=tuple(value), rows=rows) if rows else None
        if len(items) > 1 and all(isinstance(item, dict) for item in items):
            return _of_records([{"label": label, **item} for label, item in value.items()], source)
        if items and not any(isinstance(item, dict | list) for item in items):
            return SourceTable(source=source, names=("label", "value"), rows=list(value.items()))
    if not isinstance(value, list) or not value:
        return None
    if _is_records(value):
        return _of_records(value, source)
    if all(isinstance(item, list) and len(item) == 2 for item in value):
        return SourceTable(source=source, names=("label", "value"), rows=value)
    if not any(isinstance(item, dict | list) for item in value):
        return SourceTable(source=source, names=("value",), rows=[(item,) for item in value])
    return None


def _of_records(
    records: Sequence[Mapping[str, Any]], source: str, *, lines: Sequence[int] = (), findings: tuple[Finding, ...] = ()
) -> SourceTable | None:
    units: dict[str, str] = {}
    flat = [dict(_fields(record, units)) for record in records]
    names = list(dict.fromkeys(name for record in flat for name in record))[:_MOST]
    rows = [tuple(record.get(name) for name in names) for record in flat]
    if not names:
        return None
    return SourceTable(source=source, names=tuple(names), rows=rows, lines=lines, units=units, findings=findings)


def _fields(
    value: Mapping[str, Any], units: dict[str, str], prefix: str = "", depth: int = 0
) -> Iterator[tuple[str, Any]]:
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


HEAD = b"SQLite format 3\0"
_VIEW = "series"
_BETTER: Mapping[str, Better] = {"higher": "higher", "lower": "lower", "equal": "equal"}
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
            columns = _columns(connection, table)
            if table == _VIEW and set(_JOURNAL) <= set(columns):
                return _journal(connection, source, options)
            if options.stage:
                raise wrong_usage(f"expected the journal of a hunt for --stage, found the table {table!r} of {source}")
            rows = sqlite.rows(connection, f"SELECT * FROM {_quoted(table)}")  # noqa: S608 - a name from the database
            return (SourceTable(source=f"{source}:{table}", names=tuple(columns), rows=rows),)
    except sqlite3.Error as error:
        said = f"expected to read the SQLite database {source}, but: {error}"
        raise CannotVerify(said, next_command=Command("sqlite3", source, "PRAGMA integrity_check")) from error


def _columns(connection: Connection, table: str) -> list[str]:
    from karat.system.foreign.sqlite import rows

    return [str(row[1]) for row in rows(connection, f"PRAGMA table_info({_quoted(table)})")]


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def _journal(connection: Connection, source: str, options: ReadOptions) -> tuple[Sheet, ...]:
    """The stages of a hunt, one sheet each."""
    from karat.system.foreign import sqlite

    query = f"SELECT {', '.join(map(_quoted, _JOURNAL))} FROM {_VIEW} ORDER BY stage, position"  # noqa: S608 - our own names
    stages: dict[str, list[tuple[Any, ...]]] = {}
    for row in sqlite.rows(connection, query):
        stages.setdefault(str(row[0]), []).append(row)
    if options.stage and options.stage not in stages:
        raise no_such("--stage", "be a stage of the hunt", options.stage, list(stages))
    wanted = {options.stage: stages[options.stage]} if options.stage else stages
    settings: dict[str, tuple[str, str]] = {}
    if {"name", "better", "unit"} <= set(_columns(connection, "metrics")):
        found = sqlite.rows(connection, "SELECT name, better, unit FROM metrics ORDER BY rowid")
        settings = {str(name): (str(better or ""), str(unit or "")) for name, better, unit in found}
    several = len(wanted) > 1
    return tuple(_stage(source, stage, rows, settings, options, several=several) for stage, rows in wanted.items())


def _stage(
    source: str,
    stage: str,
    rows: Sequence[Sequence[Any]],
    settings: Mapping[str, tuple[str, str]],
    options: ReadOptions,
    *,
    several: bool,
) -> Sheet:
    """`settings`: metric → which direction is better, and its unit."""
    there = dict.fromkeys(str(row[4]) for row in rows if row[4] is not None)
    # Those of the hunt first, in its order.
    ranks = {name: rank for rank, name in enumerate(settings)}
    metrics = sorted(there, key=lambda name: ranks.get(name, len(ranks)))
    for name in options.metrics:
        if name not in metrics:
            raise no_such("--metric", f"be a metric of {source}", name, metrics)
    wanted = tuple(name for name in metrics if not options.metrics or name in options.metrics)
    points: dict[Any, list[Sequence[Any]]] = {}
    for row in rows:
        points.setdefault(row[1], []).append(row)

    def cell(row: Sequence[Any]) -> Cell:
        value, outcome, signature = row[5], row[6], row[7]
        if value is not None:
            return sheets.read_cell(value, nan=options.nan)
        kind = Outcome(outcome) if outcome in set(Outcome) else Outcome.BROKEN
        return NoSample(Outcome.MISSING if kind is Outcome.OK else kind, str(signature or ""))

    made = []
    for held in points.values():
        label, at = str(held[0][2]), held[0][3]
        when = sheets.since_1970(at) or sheets.parse_date(at)
        of_metric: dict[str, list[Sequence[Any]]] = {name: [] for name in wanted}
        for row in held:
            for name in wanted if row[4] is None else (str(row[4]),):
                of_metric.setdefault(name, []).append(row)
        cells = {name: sheets.join_cells(map(cell, of_metric[name])) for name in wanted}
        log = Command("karat", "hunt", "show", label, "--stage", stage, "--journal", source)
        made.append(SheetRow(label=label, cells=cells, when=None if when is None else sheets.utc(when), log=log))
    known = {name: settings[name] for name in wanted if name in settings}
    return Sheet(
        source=f"{source} stage {stage}" if several else source,
        metrics=wanted,
        rows=tuple(made),
        units={name: unit for name, (_, unit) in known.items()},
        better={name: _BETTER[said] for name, (said, _) in known.items() if said in _BETTER},
        ordered=True,
    )
