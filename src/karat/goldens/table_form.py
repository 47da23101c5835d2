"""The form of a table: its entries on disk, its header if it has one, and what identifies a row."""

from __future__ import annotations

import csv
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from karat.goldens import lines

_NAMES = frozenset({"name", "model", "benchmark", "test", "case", "id", "key"})
"""Columns that name the thing of a row; all columns up to the first of them identify it."""

_PARAMETERS = frozenset(
    {
        "backend", "batch_size", "batch", "bs", "data_type", "dataset", "dev", "device", "dtype",
        "dynamic", "flow", "metric", "mode", "op", "phase", "platform", "precision", "quantization",
        "scenario", "shape", "subtest", "suite", "task", "wrapper",
    }
)  # fmt: skip
"""Columns that are parameters of the thing, wherever they stand."""

_HEADERLESS = ("benchmark", "metric", "expected", "noise_margin")
_IDENTIFIER = re.compile(r"[A-Za-z_%][\w.%/\-]*")
_RAW_CELL = re.compile(r'[ \t]*"(?:[^"]|"")*"[^,]*|[^,]*')


@dataclass(frozen=True, slots=True)
class Entry:
    """A row, comment or header, with the line ending and blank lines behind it."""

    content: str
    tail: str
    cells: tuple[str, ...]
    """Stripped; of a comment, what stands behind the mark."""
    line: int = 0
    """Where it begins, counted from 1; 0 for an entry that is new."""
    comment: bool = False

    def with_content(self, content: str) -> Entry:
        return replace(self, content=content)

    def with_tail(self, tail: str) -> Entry:
        return replace(self, tail=tail)

    def with_cells(self, cells: tuple[str, ...], *, mark: str) -> Entry:
        """The entry itself if the cells are its own, otherwise one with the new cells."""
        if cells == self.cells:
            return self
        return replace(self, content=mark + fresh_row(cells), cells=cells)

    def raw_cells(self) -> list[str]:
        """The cells as they are spelled, quotes and padding included; none if that is unclear."""
        raws = self.content.split(",")
        if '"' in self.content:
            raws = _raw_cells(self.content)
        return raws if len(raws) == len(self.cells) else []


def _raw_cells(content: str) -> list[str]:
    found: list[str] = []
    at = 0
    while at <= len(content):
        match = _RAW_CELL.match(content, at)
        if match is None:
            return []
        found.append(match.group())
        at = match.end() + 1
    return found


def entries(text: str) -> tuple[str, list[Entry]]:
    """The blank lines before everything else, and the entries behind them."""
    raws = lines.split(text)
    found: list[Entry] = []
    at = _blank(raws, 0)
    prefix = "".join(raws[:at])
    while at < len(raws):
        entry, behind = _entry(raws, at)
        at = _blank(raws, behind)
        if at > behind:
            entry = entry.with_tail(entry.tail + "".join(raws[behind:at]))
        found.append(entry)
    return prefix, found


def _blank(raws: list[str], at: int) -> int:
    """The first line from `at` on that is not blank."""
    while at < len(raws) and not raws[at].strip():
        at += 1
    return at


def _entry(raws: list[str], at: int) -> tuple[Entry, int]:
    raw = raws[at]
    comment = raw.lstrip().startswith("#")
    if comment:
        cells, count = raw.lstrip().removeprefix("#").split(","), 1
    else:
        cells, count = _quoted(raws, at) if '"' in raw else (raw.split(","), 1)
    content = "".join(raws[at : at + count])
    tail = lines.ending(content)
    stripped = tuple(cell.strip() for cell in cells)
    content = content.removesuffix(tail) if tail else content
    return Entry(content, tail, stripped, at + 1, comment), at + count


def _quoted(raws: list[str], at: int) -> tuple[list[str], int]:
    """The cells of a row with quotes, and how many lines it takes."""
    reader = csv.reader((raws[i] for i in range(at, len(raws))), skipinitialspace=True)
    try:
        return next(reader), reader.line_num
    except (csv.Error, StopIteration):
        return raws[at].split(","), 1


@dataclass(frozen=True, slots=True)
class Form:
    """The columns of a table and the entry that names them, if there is one."""

    columns: tuple[str, ...]
    header: Entry | None

    def rows(self, found: Sequence[Entry]) -> Iterator[Entry]:
        """The entries that are rows."""
        for entry in found:
            if entry is not self.header and not entry.comment:
                yield entry

    def fit(self, cells: tuple[str, ...]) -> tuple[str, ...]:
        """As many cells as there are columns: padded with empty ones, or cut."""
        width = len(self.columns)
        return (cells + ("",) * width)[:width]


def form_of(found: Sequence[Entry]) -> Form | None:
    """The form of a table, judged by its content; None if there is no row at all."""
    rows = [entry for entry in found if not entry.comment]
    first = found[0].cells if found and found[0].comment else ()
    # A comment names the columns only if the first row, where there is one, has as many.
    if names_columns(first) and all(len(entry.cells) == len(first) for entry in rows[:1]):
        return Form(first, found[0])
    if not rows:
        return None
    if _is_header(rows[0].cells, [entry.cells for entry in rows[1:]]):
        return Form(rows[0].cells, rows[0])
    # One odd cell must not change what all rows are, so most of them decide.
    if 2 * sum(_is_expectation(entry.cells) for entry in rows) >= len(rows):
        return Form(_HEADERLESS, None)
    return Form(tuple(f"c{n}" for n in range(1, len(rows[0].cells) + 1)), None)


def _is_expectation(cells: tuple[str, ...]) -> bool:
    """True for two names and two numbers, which is what a row without a header looks like."""
    return len(cells) == len(_HEADERLESS) and [is_number(cell) for cell in cells] == [
        False,
        False,
        True,
        True,
    ]


def key_columns(form: Form) -> tuple[str, ...]:
    """The columns that identify a row, judged by their names alone, so that two versions agree."""
    lowered = [name.lower() for name in form.columns]
    known = next((i for i, name in enumerate(lowered) if name in _NAMES), -1)
    chosen = [
        name for i, name in enumerate(form.columns) if i <= known or lowered[i] in _PARAMETERS
    ]
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


def _is_header(cells: tuple[str, ...], rows: list[tuple[str, ...]]) -> bool:
    """True for a first row without numbers that is unique in its cells and unlike the rows below."""
    if len(set(cells)) != len(cells) or not all(cells) or any(map(is_number, cells)):
        return False
    return names_columns(cells) or any(is_number(cell) for row in rows for cell in row)


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
    return lead + _quote(new) + trail


def _quote(cell: str) -> str:
    if not any(char in cell for char in ',"\n\r'):
        return cell
    return '"' + cell.replace('"', '""') + '"'
