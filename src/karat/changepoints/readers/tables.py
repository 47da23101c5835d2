"""Tables of text: CSV with any delimiter and with or without a header, JSON, and JSON Lines."""

from __future__ import annotations

import csv
import io
import json
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import msgspec

from karat.changepoints.readers.columns import SourceTable
from karat.changepoints.readers.sheets import number
from karat.findings import Finding, warn
from karat.goldens.text_file import BOM, LimitedFindings

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
    is_header = not any(number(cell) is not None for cell in first)
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
    """The table that a JSON value is."""
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
