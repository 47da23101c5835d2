"""table-csv: rows of comma-separated cells, with a header, a commented header, or none.

The file is kept as entries, one for each row, comment and header with the blank lines behind it, so
that a row can change, come or go while every other byte stays.
"""

from __future__ import annotations

import csv
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace

from karat.findings import Finding, Severity, UsageError, fail
from karat.goldens import json_text, text_file
from karat.goldens.shapes import Golden, Reading, RowKey, Shape, Table, ensure_held
from karat.system.foreign import limits

_NAMES = frozenset({"name", "model", "benchmark", "test", "case", "id", "key"})
"""Columns that name the thing of a row; all columns up to the first of them identify it."""

# fmt: off
_PARAMETERS = frozenset({
    "backend", "batch_size", "batch", "bs", "data_type", "dataset", "dev", "device", "dtype", "dynamic", "flow",
    "metric", "mode", "op", "phase", "platform", "precision", "quantization", "scenario", "shape", "subtest",
    "suite", "task", "wrapper",
})
"""Columns that are parameters of the thing, wherever they stand."""
# fmt: on

_HEADERLESS = ("benchmark", "metric", "expected", "noise_margin")
_IDENTIFIER = re.compile(r"[A-Za-z_%][\w.%/\-]*")


@dataclass(frozen=True, slots=True)
class CSVEntry:
    """A row, comment or header, with the line ending and blank lines behind it."""

    content: str
    tail: str
    cells: tuple[str, ...]  # Stripped; of a comment, what stands behind the mark.
    line: int = 0  # Where it begins, counted from 1; 0 for an entry that is new.
    comment: bool = False


def entries(text: str) -> tuple[str, list[CSVEntry]]:
    """The blank lines before everything else, and the entries behind them."""
    raws = text_file.split(text)
    found: list[CSVEntry] = []
    at = _blank(raws, 0)
    prefix = "".join(raws[:at])
    while at < len(raws):
        entry, behind = _entry(raws, at)
        at = _blank(raws, behind)
        if at > behind:
            entry = replace(entry, tail=entry.tail + "".join(raws[behind:at]))
        found.append(entry)
    return prefix, found


def _blank(raws: list[str], at: int) -> int:
    """The first line from `at` on that is not blank."""
    while at < len(raws) and not raws[at].strip():
        at += 1
    return at


def _entry(raws: list[str], at: int) -> tuple[CSVEntry, int]:
    raw = raws[at]
    comment = raw.lstrip().startswith("#")
    cells, count = (raw.lstrip().removeprefix("#") if comment else raw).split(","), 1
    if '"' in raw and not comment:
        # A row with quotes may take several lines.
        reader = csv.reader((raws[i] for i in range(at, len(raws))), skipinitialspace=True)
        with suppress(csv.Error, StopIteration):
            cells, count = next(reader), reader.line_num
    content = "".join(raws[at : at + count])
    tail = text_file.ending(content)
    stripped = tuple(cell.strip() for cell in cells)
    content = content.removesuffix(tail) if tail else content
    return CSVEntry(content, tail, stripped, at + 1, comment), at + count


@dataclass(frozen=True, slots=True)
class Form:
    """The columns of a table and the entry that names them, if there is one."""

    columns: tuple[str, ...]
    header: CSVEntry | None

    def rows(self, found: Sequence[CSVEntry]) -> Iterator[CSVEntry]:
        """The entries that are rows."""
        for entry in found:
            if entry is not self.header and not entry.comment:
                yield entry

    def places(self, names: Sequence[str]) -> list[int]:
        """Where the columns of these names stand, those that there are."""
        known = {name: place for place, name in reversed([*enumerate(self.columns)])}
        return [known[name] for name in names if name in known]

    def fit(self, cells: tuple[str, ...]) -> tuple[str, ...]:
        """As many cells as there are columns: padded with empty ones, or cut."""
        width = len(self.columns)
        return (cells + ("",) * width)[:width]


def form_of(found: Sequence[CSVEntry]) -> Form | None:
    """The form of a table, judged by its content; None if there is no row at all."""
    rows = [entry for entry in found if not entry.comment]
    first = found[0].cells if found and found[0].comment else ()
    # A comment names the columns only if the first row, where there is one, has as many.
    if names_columns(first) and all(len(entry.cells) == len(first) for entry in rows[:1]):
        return Form(first, found[0])
    if not rows:
        return None
    # A header has no numbers, is unique in its cells, and unlike the rows below.
    cells = rows[0].cells
    plain = len(set(cells)) == len(cells) and all(cells) and not any(map(is_number, cells))
    if plain and (names_columns(cells) or any(is_number(cell) for entry in rows[1:] for cell in entry.cells)):
        return Form(cells, rows[0])
    # One odd cell must not change what all rows are, so most of them decide.
    expectation = [False, False, True, True]  # two names and two numbers
    fitting = [entry for entry in rows if list(map(is_number, entry.cells)) == expectation]
    if 2 * len(fitting) >= len(rows):
        return Form(_HEADERLESS, None)
    return Form(tuple(f"c{n}" for n in range(1, len(rows[0].cells) + 1)), None)


def key_columns(form: Form) -> tuple[str, ...]:
    """The columns that identify a row, judged by their names alone, so that two versions agree."""
    lowered = [name.lower() for name in form.columns]
    known = next((i for i, name in enumerate(lowered) if name in _NAMES), -1)
    chosen = [name for i, name in enumerate(form.columns) if i <= known or lowered[i] in _PARAMETERS]
    return tuple(chosen) or form.columns[:1]


def is_number(cell: str) -> bool:
    """True for what reads as a number, NaN and infinities included."""
    try:
        float(cell)
    except ValueError:
        return False
    return True


def names_columns(cells: tuple[str, ...]) -> bool:
    """True for two or more different identifiers, which is what names of columns are."""
    return (
        len(cells) > 1
        and len(set(cells)) == len(cells)
        and all(_IDENTIFIER.fullmatch(cell) and not is_number(cell) for cell in cells)
    )


def fresh_row(cells: Sequence[str]) -> str:
    """The cells as a row, quoted where they must be."""
    row = ",".join(f'"{cell.replace(chr(34), chr(34) * 2)}"' if _QUOTED.search(cell) else cell for cell in cells)
    # Unquoted, a row whose first cell begins so would be a comment.
    return f'"{cells[0]}"{row[len(cells[0]) :]}' if row.startswith("#") else row


# An object, a list, or a string that holds one: its quotes are escaped as no CSV has them.
_JSON = re.compile(
    rb'(?:\xef\xbb\xbf)?[ \t\r\n]*(?:[{\[]|"(?:[ ]|\\[nrt])*[{\[](?:[ \[]|\\[nrt])*\{?(?:[ ]|\\[nrt])*\\")'
)
_QUOTED = re.compile(r'[,"\n\r]')
_STRING = re.compile(rb'(?:\xef\xbb\xbf)?[ \t\r\n]*"')
_CANNOT = "table-csv cannot hold this table: expected"


class TableCSV:
    """Comma-separated values, whatever the columns."""

    name = "table-csv"
    shape: Shape = "table"

    def claims(self, data: bytes) -> bool:
        if _JSON.match(data) or text_file.check(data) is not None:
            return False
        if _STRING.match(data) and json_text.parse(data).ok:
            return False
        rows = [entry.cells for entry in entries(text_file.decode(data))[1] if not entry.comment]
        # Text that happens to hold commas: its cells are full of spaces, or end in colons.
        some = [cell for row in rows[:50] for cell in row]
        wordy = sum(cell.count(" ") > 3 or cell.endswith(":") for cell in some)
        if not rows or len(rows[0]) < 2 or 4 * wordy >= len(some):
            return False
        count = sum(len(row) == len(rows[0]) for row in rows)
        return names_columns(rows[0]) or 4 * count > 3 * len(rows)

    def read(self, data: bytes) -> Reading:
        return read_table(data)

    def write(self, golden: Golden, like: bytes | None = None) -> bytes:
        if not isinstance(golden, Table):
            raise UsageError(f"{self.name} holds tables, not a {golden.shape}")
        wanted = len(golden.columns)
        for key, cells in golden.rows.items():
            if len(cells) != wanted:
                raise UsageError(f"{_CANNOT} {wanted} cells in the row {', '.join(key)}, found {len(cells)}")
        try:
            if like is None or not self.claims(like):
                rows = [*([golden.columns] if golden.header else []), *golden.rows.values()]
                written = "".join(fresh_row(row) + "\n" for row in rows).encode()
                back = self.read(written).golden
            else:
                written = text_file.encode(_rewritten(golden, text_file.decode(like)), like)
                # Whoever has read the file by other key columns may write it by them.
                back = read_table(written, golden.key).golden
        except UnicodeEncodeError as error:
            raise UsageError(f"{_CANNOT} text, found {error.object!r:.40}") from error
        ensure_held(self.name, golden, back if not golden.rows or self.claims(written) else None)
        return written


def read_table(data: bytes, key: Sequence[str] | None = None) -> Reading:
    """The table in the bytes; `key` names the columns that identify a row, if not the usual ones."""
    if (hazard := text_file.check(data)) is not None:
        return Reading(None, (hazard,), TableCSV.name)
    _, found = entries(text_file.decode(data))
    form = form_of(found)
    if form is None:
        odd = text_file.LimitedFindings()
        odd.on_line("unreadable", 1, "expected rows of cells, found none")
        return Reading(None, odd.findings(), TableCSV.name)
    if len(form.columns) > (most := limits.COLUMNS.value()):
        said = f"expected at most {most:,} columns, found {len(form.columns):,}; {limits.COLUMNS.setting}"
        return Reading(None, (fail("unreadable", said, where="line 1"),), TableCSV.name)
    names = key_columns(form) if key is None else key
    places = form.places(names) or [0]
    rows, findings = _rows(found, form, places)
    table = Table(form.columns, tuple(form.columns[at] for at in places), rows, header=form.header is not None)
    return Reading(table, findings, TableCSV.name)


def _rows(
    found: list[CSVEntry], form: Form, places: Sequence[int]
) -> tuple[dict[RowKey, tuple[str, ...]], tuple[Finding, ...]]:
    rows: dict[RowKey, tuple[str, ...]] = {}
    lines_of: dict[RowKey, int] = {}
    odd = text_file.LimitedFindings()
    for entry in form.rows(found):
        if len(entry.cells) != len(form.columns):
            message = f"expected {len(form.columns)} fields on line {entry.line}, found {len(entry.cells)}"
            odd.on_line("ragged-row", entry.line, message)
        cells = form.fit(entry.cells)
        row_key = tuple(cells[place] for place in places)
        if row_key in rows:
            severity, what = Severity.FAIL, "other cells, and the first was read"
            if rows[row_key] == cells:
                severity, what = Severity.WARN, "the same cells"
            first, name = lines_of[row_key], ", ".join(row_key)
            message = f"expected one row {name}, found it on line {first} and on line {entry.line} with {what}"
            odd.on_line("duplicate-row", entry.line, message, severity=severity)
        else:
            rows[row_key] = cells
            lines_of[row_key] = entry.line
    if not rows:
        odd.on_line("empty", 1, "expected rows below the header, found none")
    return rows, odd.findings()


def _rewritten(table: Table, old: str) -> str:
    """One table written over the text of another: rows changed in place, removed, or added at their sorted place."""
    prefix, found = entries(old)
    form = form_of(found)
    assert form is not None  # noqa: S101 - a text without rows is not claimed
    places, same_columns = form.places(table.key), table.columns == form.columns
    keys: dict[int, RowKey] = {}
    first: dict[RowKey, CSVEntry] = {}
    for entry in form.rows(found):
        cells = form.fit(entry.cells)
        keys[entry.line] = tuple(cells[place] for place in places)
        first.setdefault(keys[entry.line], entry)  # of two rows with one key the first is read
    tails = Counter(entry.tail for entry in found[:-1])
    end, usual = found[-1], tails.most_common(1)[0][0] if tails else found[-1].tail or "\n"
    kept: list[CSVEntry] = []
    for entry in found:
        key = keys.get(entry.line)
        content: str | None = entry.content
        if entry is form.header and table.columns != entry.cells:
            content = ("#" if entry.comment else "") + fresh_row(table.columns)
        elif key is not None and (entry is first[key] or key not in table.rows or not same_columns):
            wanted = table.rows.get(key) if entry is first[key] else None
            if wanted is None or not same_columns or wanted != form.fit(entry.cells):
                content = None if wanted is None else fresh_row(wanted)
        if content is not None:
            kept.append(replace(entry, content=content, tail=usual if entry is end else entry.tail))
    added = {key: CSVEntry(fresh_row(row), usual, row) for key, row in table.rows.items() if key not in first}
    order = [*keys.values()]
    if len(order) > 1 and order == sorted(order):
        kept = text_file.merge(kept, [keys.get(entry.line) for entry in kept], added)
    else:
        kept += added.values()
    if kept:  # whatever entry is the last now, the file ends as it did
        kept[-1] = replace(kept[-1], tail=end.tail)
    return prefix + "".join(entry.content + entry.tail for entry in kept)


FORMAT = TableCSV()
