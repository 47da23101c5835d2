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
from karat.goldens.line_records import merge
from karat.goldens.shapes import Golden, Reading, RowKey, Shape, Table
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
_RAW_CELL = re.compile(r'[ \t]*"(?:[^"]|"")*"[^,]*|[^,]*')


@dataclass(frozen=True, slots=True)
class CSVEntry:
    """A row, comment or header, with the line ending and blank lines behind it."""

    content: str
    tail: str
    cells: tuple[str, ...]  # Stripped; of a comment, what stands behind the mark.
    line: int = 0  # Where it begins, counted from 1; 0 for an entry that is new.
    comment: bool = False

    def with_cells(self, cells: tuple[str, ...], *, mark: str) -> CSVEntry:
        """The entry itself if the cells are its own, otherwise one with the new cells."""
        if cells == self.cells:
            return self
        return replace(self, content=mark + fresh_row(cells), cells=cells)

    def raw_cells(self) -> list[str]:
        """The cells as they are spelled, quotes and padding included; none if that is unclear."""
        raws: list[str] = []
        at = 0
        while at <= len(self.content):
            match = _RAW_CELL.match(self.content, at)
            assert match is not None  # noqa: S101 - it matches the empty text
            raws.append(match.group())
            at = match.end() + 1
        return raws if len(raws) == len(self.cells) else []


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


def render_row(parts: list[tuple[str | None, str | None, str]]) -> str:
    """A row of (old spelling, old cell, new cell); a cell that is the same keeps its spelling."""
    row = ",".join(_cell(*part) for part in parts)
    # Unquoted, a row whose first cell begins so would be a comment.
    return '"' + parts[0][2] + '"' + row[len(parts[0][2]) :] if row.startswith("#") else row


def fresh_row(cells: Sequence[str]) -> str:
    """A row that has no old spelling."""
    return render_row([(None, None, cell) for cell in cells])


def _cell(raw: str | None, old: str | None, new: str) -> str:
    if raw is not None and old == new:
        return raw
    body = (raw or "").strip()
    lead, _, trail = (raw or "").partition(body) if body else ("", "", "")
    if any(char in new for char in ',"\n\r'):
        new = '"' + new.replace('"', '""') + '"'
    return lead + new + trail


# An object, a list, or a string that holds one: its quotes are escaped as no CSV has them.
_JSON = re.compile(
    rb'(?:\xef\xbb\xbf)?[ \t\r\n]*(?:[{\[]|"(?:[ ]|\\[nrt])*[{\[](?:[ \[]|\\[nrt])*\{?(?:[ ]|\\[nrt])*\\")'
)
_STRING = re.compile(rb'(?:\xef\xbb\xbf)?[ \t\r\n]*"')
_CANNOT = "table-csv cannot hold this table: expected"


class TableCSV:
    """Comma-separated values, whatever the columns."""

    name = "table-csv"
    shape: Shape = "table"

    def claims(self, data: bytes) -> bool:
        if _JSON.match(data) or text_file.check(data) is not None:
            return False
        if _STRING.match(data) and json_text.look(data).ok:
            return False
        rows = [entry.cells for entry in entries(text_file.decode(data))[1] if not entry.comment]
        if not rows or len(rows[0]) < 2 or _prose(rows):
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
                written = text_file.encode(_Rewrite(golden, text_file.decode(like)).text(), like)
                # Whoever has read the file by other key columns may write it by them.
                back = read_table(written, golden.key).golden
        except UnicodeEncodeError as error:
            raise UsageError(f"{_CANNOT} text, found {error.object!r:.40}") from error
        _ensure_held(golden, back if not golden.rows or self.claims(written) else None)
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


def _prose(rows: list[tuple[str, ...]]) -> bool:
    """True for text that happens to hold commas: its cells are full of spaces, or end in colons."""
    cells = [cell for row in rows[:50] for cell in row]
    wordy = sum(cell.count(" ") > 3 or cell.endswith(":") for cell in cells)
    return 4 * wordy >= len(cells)


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


def _ensure_held(table: Table, written: Golden | None) -> None:
    """Refuses a table that CSV cannot hold: `written` is what would be read back."""
    if not isinstance(written, Table):
        raise UsageError(f"{_CANNOT} it to be read back, found that its text would not be taken for a table")
    if written == table:
        return
    keys = {**table.rows, **written.rows}
    rows = [(f"the row {', '.join(key)}", table.rows.get(key), written.rows.get(key)) for key in keys]
    what, expected, found = next(
        (what, _shown(expected), _shown(found))
        for what, expected, found in (
            ("the columns", table.columns, written.columns),
            ("the header", table.columns * table.header, written.columns * written.header),
            ("the key columns", table.key, written.key),
            *rows,
        )
        if expected != found
    )
    raise UsageError(f"{_CANNOT} {what} to be read back as {expected}, found {found}")


def _shown(cells: tuple[str, ...] | None) -> str:
    if not cells:
        return "nothing"
    text = ",".join(cells)
    return repr(text if len(text) <= 80 else text[:76] + "…")


class _Rewrite:
    """One table to be written over the text of another."""

    def __init__(self, table: Table, old: str) -> None:
        self.table = table
        self.prefix, self.entries = entries(old)
        form = form_of(self.entries)
        assert form is not None  # noqa: S101 - a text without rows is not claimed
        self.form = form
        self.key = form.places(table.key)
        rows = list(form.rows(self.entries))
        # Of two rows with one key the first is read, so that is the one to change.
        self.first = {self.key_of(entry): entry for entry in reversed(rows)}
        keys = [self.key_of(entry) for entry in rows]
        self.ordered = len(keys) > 1 and keys == sorted(keys)

    def text(self) -> str:
        kept = [new for entry in self.entries if (new := self.entry(entry)) is not None]
        kept = self.with_added(kept)
        self.end_alike(kept)
        return self.prefix + "".join(entry.content + entry.tail for entry in kept)

    def key_of(self, entry: CSVEntry) -> RowKey:
        cells = self.form.fit(entry.cells)
        return tuple(cells[place] for place in self.key)

    def entry(self, entry: CSVEntry) -> CSVEntry | None:
        """The entry as it shall stand: untouched, changed, or gone."""
        if entry is self.form.header:
            return entry.with_cells(self.table.columns, mark="#" if entry.comment else "")
        if entry.comment:
            return entry
        cells = self.table.rows.get(self.key_of(entry))
        if cells is None:
            return None
        if entry is not self.first.get(self.key_of(entry)) or cells == self.form.fit(entry.cells):
            return entry if self.table.columns == self.form.columns else self.moved(entry)
        return self.moved(entry, cells)

    def moved(self, entry: CSVEntry, cells: tuple[str, ...] | None = None) -> CSVEntry:
        """The row in the new columns; a cell that is the same keeps its spelling."""
        old = dict(zip(self.form.columns, self.form.fit(entry.cells), strict=True))
        raws = dict(zip(self.form.columns, entry.raw_cells(), strict=False))
        wanted = cells or tuple(old.get(name, "") for name in self.table.columns)
        pairs = zip(self.table.columns, wanted, strict=True)
        return replace(entry, content=render_row([(raws.get(name), old.get(name), cell) for name, cell in pairs]))

    def with_added(self, kept: list[CSVEntry]) -> list[CSVEntry]:
        """The entries with new rows at their sorted place, or at the end of an unsorted file."""
        usual = self.usual_tail()
        new = {key: cells for key, cells in self.table.rows.items() if key not in self.first}
        added = {key: CSVEntry(fresh_row(cells), usual, cells) for key, cells in new.items()}
        if not self.ordered:
            return [*kept, *added.values()]
        header = self.form.header.line if self.form.header else -1
        keys = [None if entry.comment or entry.line == header else self.key_of(entry) for entry in kept]
        return merge(kept, keys, added)

    def usual_tail(self) -> str:
        """The line ending and blank lines that most rows have behind them."""
        tails = Counter(entry.tail for entry in self.entries[:-1])
        return tails.most_common(1)[0][0] if tails else self.entries[-1].tail or "\n"

    def end_alike(self, kept: list[CSVEntry]) -> None:
        """Whatever entry is the last now, the file ends as it did."""
        old, usual = self.entries[-1], self.usual_tail()
        if not kept or kept[-1].line == old.line:
            return
        for index, entry in enumerate(kept):
            if entry.line == old.line:
                kept[index] = replace(entry, tail=usual)
        kept[-1] = replace(kept[-1], tail=old.tail)


FORMAT = TableCSV()
