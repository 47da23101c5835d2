"""CSV: tables of text, whatever their delimiter; with a header, a commented one, or none."""

from __future__ import annotations

import csv
import io
from collections import Counter
from collections.abc import Iterator
from functools import partial

from karat.changes.cells import number
from karat.changes.columns import Columns
from karat.findings import Finding, Severity
from karat.goldens.hazards import BOM, Few

_DELIMITERS = ",;\t|"
_LOOKED_AT = 50


def decode(data: bytes) -> str:
    """The text of a file in whatever encoding it is; what is no text comes out as odd letters, and is no number."""
    if data[:2] in {b"\xff\xfe", b"\xfe\xff"}:
        return data.decode("utf-16", "replace")
    try:
        return data.removeprefix(BOM).decode("utf-8")
    except UnicodeDecodeError:  # what spreadsheets in western Europe write
        return data.decode("cp1252", "replace")


def read_csv(data: bytes, source: str) -> Columns | None:
    """The table in the bytes; None if they are none."""
    if b"\0" in data[:65536] and data[:2] not in {b"\xff\xfe", b"\xfe\xff"}:
        return None
    text = decode(data)
    delimiter = delimiter_of(text)
    odd = Few()
    rows = list(_rows(text, delimiter, odd, source))
    if not rows:
        return None
    names, first = _header(rows, commented=_commented(text, delimiter))
    body = rows[first:]
    if not body:
        return None
    width = len(names)
    for line, row in body:
        if len(row) != width:
            odd.note("ragged-row", Severity.WARN, partial(_ragged, source, line, width, len(row)))
    return Columns(
        source=source,
        names=tuple(names),
        rows=[(row + [""] * width)[:width] for _, row in body],
        lines=[line for line, _ in body],
        decimal_comma=delimiter == ";",
        findings=odd.findings(),
    )


def delimiter_of(text: str) -> str:
    """The delimiter that gives the first lines the same number of fields, and the most of them."""
    lines = [
        line
        for line in text.split("\n", _LOOKED_AT)[:_LOOKED_AT]
        if line.strip() and line[:1] != "#"
    ]
    best, score = ",", 0
    for delimiter in _DELIMITERS:
        widths = Counter(len(row) for row in _parsed(lines, delimiter))
        if not widths:
            continue
        width, times = widths.most_common(1)[0]
        if width > 1 and times * 2 > len(lines) and times * width > score:
            best, score = delimiter, times * width
    return best


def _parsed(lines: list[str], delimiter: str) -> list[list[str]]:
    try:
        return list(csv.reader(lines, delimiter=delimiter, skipinitialspace=True))
    except csv.Error:
        return []


def _rows(text: str, delimiter: str, odd: Few, source: str) -> Iterator[tuple[int, list[str]]]:
    """Rows that hold something, with the number of their line."""
    reader = csv.reader(io.StringIO(text, newline=""), delimiter=delimiter, skipinitialspace=True)
    while True:
        try:
            row = next(reader, None)
        except csv.Error as error:
            odd.note(
                "unreadable", Severity.WARN, partial(_broken, source, reader.line_num, str(error))
            )
            continue
        if row is None:
            return
        if any(cell.strip() for cell in row) and not row[0].lstrip().startswith("#"):
            yield reader.line_num, row


def _header(rows: list[tuple[int, list[str]]], *, commented: list[str]) -> tuple[list[str], int]:
    """The names of the columns, and where the rows begin: a header has no number in it."""
    first = [cell.strip() for cell in rows[0][1]]
    if not any(number(cell) is not None for cell in first) and len(rows) > 1:
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
        found = [
            cell.strip() for row in _parsed([line.lstrip("# ")], delimiter) for cell in row
        ] or found
    return found


def _unique(names: list[str]) -> list[str]:
    seen: Counter[str] = Counter()
    out = []
    for name in names:
        seen[name] += 1
        out.append(name if seen[name] == 1 else f"{name} ({seen[name]})")
    return out


def _ragged(source: str, line: int, wanted: int, found: int) -> Finding:
    return Finding(
        kind="ragged-row",
        severity=Severity.WARN,
        message=f"expected {wanted} fields on line {line}, found {found}; cells that are not there are missing points",
        path=source,
        where=f"line {line}",
    )


def _broken(source: str, line: int, said: str) -> Finding:
    return Finding(
        kind="unreadable",
        severity=Severity.WARN,
        message=f"expected CSV on line {line}, found {said}",
        path=source,
        where=f"line {line}",
    )
