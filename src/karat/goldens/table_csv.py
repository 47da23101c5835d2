"""table-csv: rows of comma-separated cells, with a header, a commented header, or none.

The file is kept as entries, one for each row, comment and header with the blank lines behind it, so
that a row can change, come or go while every other byte stays.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from functools import partial

from karat.findings import Finding, Severity, UsageError
from karat.goldens import hazards, json_text, lines
from karat.goldens.line_writing import merge
from karat.goldens.shapes import Golden, Reading, RowKey, Shape, Table
from karat.goldens.table_form import (
    Entry,
    Form,
    entries,
    form_of,
    fresh_row,
    key_columns,
    names_columns,
    render_row,
)

__all__ = ["FORMAT", "TableCSV", "key_columns", "read_table"]

# An object, a list, or a string that holds one: its quotes are escaped as no CSV has them.
_JSON = re.compile(
    rb'(?:\xef\xbb\xbf)?[ \t\r\n]*(?:[{\[]|"(?:[ ]|\\[nrt])*[{\[](?:[ \[]|\\[nrt])*\{?(?:[ ]|\\[nrt])*\\")'
)
_STRING = re.compile(rb'(?:\xef\xbb\xbf)?[ \t\r\n]*"')


class TableCSV:
    """Comma-separated values, whatever the columns."""

    name = "table-csv"
    shape: Shape = "table"

    def claims(self, data: bytes) -> bool:
        if _JSON.match(data) or hazards.check(data) is not None:
            return False
        if _STRING.match(data) and json_text.look(data).ok:
            return False
        rows = [entry.cells for entry in entries(lines.decode(data))[1] if not entry.comment]
        if not rows or len(rows[0]) < 2 or _prose(rows):
            return False
        count = sum(len(row) == len(rows[0]) for row in rows)
        return names_columns(rows[0]) or 4 * count > 3 * len(rows)

    def read(self, data: bytes) -> Reading:
        return read_table(data)

    def write(self, golden: Golden, like: bytes | None = None) -> bytes:
        if not isinstance(golden, Table):
            raise UsageError(f"{self.name} holds tables, not a {golden.shape}")
        _ensure_whole(golden)
        try:
            if like is None or not self.claims(like):
                written = _plain(golden).encode()
                back = self.read(written).golden
            else:
                written = lines.encode(_Rewrite(golden, lines.decode(like)).text(), like)
                # Whoever has read the file by other key columns may write it by them.
                back = read_table(written, golden.key).golden
        except UnicodeEncodeError as error:
            raise UsageError(
                f"{self.name} cannot hold this table: expected text, found {error.object!r:.40}"
            ) from error
        claimed = not golden.rows or self.claims(written)
        _ensure_held(golden, back if claimed else None)
        return written


def read_table(data: bytes, key: Sequence[str] | None = None) -> Reading:
    """The table in the bytes; `key` names the columns that identify a row, if not the usual ones."""
    hazard = hazards.check(data)
    if hazard is not None:
        return Reading(None, (hazard,), TableCSV.name)
    _, found = entries(lines.decode(data))
    form = form_of(found)
    if form is None:
        return Reading(
            None, (_finding("unreadable", 1, "expected rows of cells, found none"),), TableCSV.name
        )
    names = (
        key_columns(form) if key is None else tuple(name for name in key if name in form.columns)
    )
    rows, findings = _rows(found, form, names or form.columns[:1])
    table = Table(form.columns, names or form.columns[:1], rows, header=form.header is not None)
    return Reading(table, findings, TableCSV.name)


def _prose(rows: list[tuple[str, ...]]) -> bool:
    """True for text that happens to hold commas: its cells are full of spaces, or end in colons."""
    cells = [cell for row in rows[:50] for cell in row]
    wordy = sum(cell.count(" ") > 3 or cell.endswith(":") for cell in cells)
    return 4 * wordy >= len(cells)


def _rows(
    found: list[Entry], form: Form, key: tuple[str, ...]
) -> tuple[dict[RowKey, tuple[str, ...]], tuple[Finding, ...]]:
    places = [form.columns.index(name) for name in key]
    rows: dict[RowKey, tuple[str, ...]] = {}
    lines_of: dict[RowKey, int] = {}
    odd = hazards.Few()
    for entry in form.rows(found):
        if len(entry.cells) != len(form.columns):
            odd.note("ragged-row", Severity.FAIL, partial(_ragged, entry, form))
        cells = form.fit(entry.cells)
        row_key = tuple(cells[place] for place in places)
        if row_key in rows:
            same = rows[row_key] == cells
            make = partial(_duplicate, row_key, lines_of[row_key], entry.line, same=same)
            odd.note("duplicate-row", Severity.WARN if same else Severity.FAIL, make)
        else:
            rows[row_key] = cells
            lines_of[row_key] = entry.line
    if not rows:
        odd.add(_finding("empty", 1, "expected rows below the header, found none"))
    return rows, odd.findings()


def _ragged(entry: Entry, form: Form) -> Finding:
    wanted, found = len(form.columns), len(entry.cells)
    message = f"expected {wanted} fields on line {entry.line}, found {found}"
    return _finding("ragged-row", entry.line, message)


def _duplicate(key: RowKey, first: int, second: int, *, same: bool) -> Finding:
    name = ", ".join(key)
    what = "the same cells" if same else "other cells, and the first was read"
    message = f"expected one row {name}, found it on line {first} and on line {second} with {what}"
    severity = Severity.WARN if same else Severity.FAIL
    return _finding("duplicate-row", second, message, severity)


def _finding(kind: str, line: int, message: str, severity: Severity = Severity.FAIL) -> Finding:
    return Finding(
        kind=kind,
        severity=severity,
        message=message,
        where=f"line {line}",
        numbers={"line": line},
    )


def _ensure_whole(table: Table) -> None:
    """Refuses a table whose rows do not fit its columns."""
    wanted = len(table.columns)
    for key, cells in table.rows.items():
        if len(cells) != wanted:
            raise UsageError(
                f"table-csv cannot hold this table: expected {wanted} cells in the row"
                f" {', '.join(key)}, found {len(cells)}"
            )


def _ensure_held(table: Table, written: Golden | None) -> None:
    """Refuses a table that CSV cannot hold: `written` is what would be read back."""
    if not isinstance(written, Table):
        raise UsageError(
            "table-csv cannot hold this table: expected it to be read back, found that its text"
            " would not be taken for a table"
        )
    if written == table:
        return
    rows = [
        (f"the row {', '.join(key)}", table.rows.get(key), written.rows.get(key))
        for key in {**table.rows, **written.rows}
    ]
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
    raise UsageError(
        f"table-csv cannot hold this table: expected {what} to be read back as {expected},"
        f" found {found}"
    )


def _shown(cells: tuple[str, ...] | None) -> str:
    if not cells:
        return "nothing"
    text = ",".join(cells)
    return repr(text if len(text) <= 80 else text[:76] + "…")


def _plain(table: Table) -> str:
    header = [table.columns] if table.header else []
    return "".join(fresh_row(cells) + "\n" for cells in [*header, *table.rows.values()])


class _Rewrite:
    """One table to be written over the text of another."""

    def __init__(self, table: Table, old: str) -> None:
        self.table = table
        self.prefix, self.entries = entries(old)
        form = form_of(self.entries)
        assert form is not None  # noqa: S101 - a text without rows is not claimed
        self.form = form
        self.key = [form.columns.index(name) for name in table.key if name in form.columns]
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

    def key_of(self, entry: Entry) -> RowKey:
        cells = self.form.fit(entry.cells)
        return tuple(cells[place] for place in self.key)

    def entry(self, entry: Entry) -> Entry | None:
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

    def moved(self, entry: Entry, cells: tuple[str, ...] | None = None) -> Entry:
        """The row in the new columns; a cell that is the same keeps its spelling."""
        old = dict(zip(self.form.columns, self.form.fit(entry.cells), strict=True))
        raws = dict(zip(self.form.columns, entry.raw_cells(), strict=False))
        wanted = cells or tuple(old.get(name, "") for name in self.table.columns)
        pairs = zip(self.table.columns, wanted, strict=True)
        return entry.with_content(
            render_row([(raws.get(name), old.get(name), cell) for name, cell in pairs])
        )

    def with_added(self, kept: list[Entry]) -> list[Entry]:
        """The entries with new rows at their sorted place, or at the end of an unsorted file."""
        usual = self.usual_tail()
        added = {
            key: Entry(fresh_row(cells), usual, cells)
            for key, cells in self.table.rows.items()
            if key not in self.first
        }
        if not self.ordered:
            return [*kept, *added.values()]
        return merge(
            kept, [self.key_of(entry) if self.is_row(entry) else None for entry in kept], added
        )

    def is_row(self, entry: Entry) -> bool:
        return not entry.comment and entry.line != self.header_line

    @property
    def header_line(self) -> int:
        return self.form.header.line if self.form.header else -1

    def usual_tail(self) -> str:
        """The line ending and blank lines that most rows have behind them."""
        tails = Counter(entry.tail for entry in self.entries[:-1])
        return tails.most_common(1)[0][0] if tails else self.entries[-1].tail or "\n"

    def end_alike(self, kept: list[Entry]) -> None:
        """Whatever entry is the last now, the file ends as it did."""
        old, usual = self.entries[-1], self.usual_tail()
        if not kept or kept[-1].line == old.line:
            return
        for index, entry in enumerate(kept):
            if entry.line == old.line:
                kept[index] = entry.with_tail(usual)
        kept[-1] = kept[-1].with_tail(old.tail)


FORMAT = TableCSV()
