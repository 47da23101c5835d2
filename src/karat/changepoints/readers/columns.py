"""Columns: which one of a table has labels, which has dates, which are metrics; and its rows, read. Pure.

How numbers are written (decimal commas, thousands separators, units) is decided for a whole column: `1.234` is one number
beside `3,5` and another beside `3.5`. Units are never converted: a cell in another unit than the others of its column is
no number.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import datetime
from fnmatch import fnmatchcase
from functools import partial
from itertools import islice
from typing import Any

import msgspec

from karat.changepoints.readers import sheets
from karat.changepoints.readers.sheets import Cell, NoSample, ReadOptions, Sheet, SheetRow
from karat.changepoints.series import no_such, wrong_usage
from karat.findings import Finding, Severity, warn
from karat.goldens.series_json import text_number
from karat.goldens.text_file import LimitedFindings

_LONGEST = 64
_APART = ".,'’\u00a0\u202f"
_MEASURED = re.compile(
    rf"([$€£¥]?) ?([-+−]?[\d{_APART}]*\d(?:[eE][-+]?\d+)?) ?([%‰]|[A-Za-zµμ°Ω][^\s\d][^\s]{{0,18}}|[A-Za-zµμΩ]|)"
)
_WHOLE = re.compile(rf"[-+]?(?:\d*|\d{{1,3}}([{_APART}])\d{{3}}(?:\1\d{{3}})*)")
_GROUPED = re.compile(r"[-+−]?[1-9]\d{0,2}(?:,\d{3})+")
_TIMES = ("timestamp", "datetime", "date", "time", "when", "at", "night", "day", "created", "created_at", "commit_date")
_LABELS = (
    "label", "commit", "sha", "git_commit", "revision", "rev", "hash", "version", "release", "tag", "build", "image",
    "point", "name", "id", "run", "run_id", "night",
)  # fmt: skip
_COUNTERS = ("step", "iteration", "iter", "index", "n", "#", "i", "x", "build", "run", "number", "epoch", "")
_SHA = re.compile(r"[0-9a-f]{40}|[0-9a-f]{64}")
_NUMBERISH = re.compile(r"[-+−$€£¥]? ?\d[\d.,]*(?: ?[A-Za-zµ%/]{1,12})?")
_SHORT = 10
_FEW = 3
_SAMPLE = 2000  # cells of a column that are looked at to see whether it is a metric


class NumberFormat(msgspec.Struct, frozen=True, kw_only=True):
    """How the numbers of one column are written."""

    decimal: str = "."
    unit: str = ""

    def number(self, text: str) -> float | None:
        """The number in a cell; None if it is written in another way."""
        match = _match(text)
        if match is None:
            return None
        mantissa, mark, exponent = re.sub("[eE]", "e", match[2].replace("−", "-")).partition("e")
        whole, _, fraction = mantissa.partition(self.decimal)
        if not _WHOLE.fullmatch(whole) or not (fraction.isdecimal() or not fraction):
            return None
        digits = re.sub(f"[{_APART}]", "", whole)
        value = text_number(f"{digits}.{fraction or '0'}{mark}{exponent}")
        # Zero is zero in any unit.
        return value if (match[1] or match[3]) == self.unit or value == 0 else None


def number_format(cells: Sequence[Any], *, decimal_comma: bool) -> NumberFormat | None:
    """How most cells of a column are written, where that is not plainly; `decimal_comma`: one comma is no thousand."""
    texts = [cell.strip() for cell in cells if isinstance(cell, str) and cell.strip()]
    if not any(("," in text or not (text[-1:].isdigit() and text_number(text) is not None)) for text in texts):
        return None
    matches = [match for text in texts if (match := _match(text)) is not None]
    if 2 * len(matches) <= len(texts):
        return None
    # The decimal mark: of two marks in one number the last; a comma before any but three digits.
    bodies = [match[2] for match in matches]
    both = Counter(max(".,", key=body.rfind) for body in bodies if "." in body and "," in body)
    commas = [body for body in bodies if "," in body]
    grouped = all(_GROUPED.fullmatch(body) for body in commas)
    several = any(body.count(",") > 1 for body in commas)
    decimal = "." if not commas or several or (grouped and not decimal_comma) else ","
    if both:
        decimal = both.most_common(1)[0][0]
    ((unit, _),) = Counter(match[1] or match[3] for match in matches).most_common(1)
    found = NumberFormat(decimal=decimal, unit=unit)
    read = sum(found.number(text) is not None for text in texts)
    plain = sum(text_number(text) is not None for text in texts)
    return found if read > plain and 2 * read > len(texts) else None


def _match(text: str) -> re.Match[str] | None:
    return _MEASURED.fullmatch(text.strip()) if len(text) <= _LONGEST else None


class SourceTable(msgspec.Struct, frozen=True, kw_only=True):
    """A table as it was read: names, rows of cells, and on which line each row stood."""

    source: str
    names: tuple[str, ...]
    rows: Sequence[Sequence[Any]]
    lines: Sequence[int] = ()
    units: Mapping[str, str] = msgspec.field(default_factory=dict)
    decimal_comma: bool = False
    """Whether one comma in a number is a decimal one: it is where semicolons part the cells."""
    findings: tuple[Finding, ...] = ()

    def fits(self, wanted: str) -> list[int]:
        """The columns that a name or a glob means."""
        return [at for at, n in enumerate(self.names) if n == wanted or fnmatchcase(n, wanted)]


def read_table(table: SourceTable, options: ReadOptions) -> Sheet:
    chosen = _Chosen(table, options)
    units = {table.names[at]: chosen.formats[at].unit for at in chosen.metrics if at in chosen.formats}
    return Sheet(
        source=table.source,
        metrics=tuple(table.names[column] for column in chosen.metrics),
        rows=tuple(chosen.rows()),
        units={**table.units, **{name: unit for name, unit in units.items() if unit}},
        findings=(*table.findings, *chosen.odd.findings()),
        notes=chosen.notes(),
    )


class _Chosen:
    """What each column is."""

    def __init__(self, table: SourceTable, options: ReadOptions) -> None:
        self.table, self.options = table, options
        self.odd = LimitedFindings()
        asked = (at for name in options.metrics for at in table.fits(name) or [self.named(name, "--metric")])
        self.asked = list(dict.fromkeys(asked))
        # Column → how its numbers are written, where that is not plain; labels and dates are no numbers.
        self.formats: dict[int, NumberFormat] = {}
        for at, name in enumerate(table.names):
            if at in self.asked or not (self._base(at) in {*_TIMES, *_LABELS} or name in {options.x, options.time}):
                held = [cell for cell in self.column(at) if not sheets.is_empty(cell)]
                form = number_format(held, decimal_comma=table.decimal_comma)
                if form is not None:
                    self.formats[at] = form
        self.counters: list[int] = []  # columns that only number the rows
        self.moments: list[datetime] | None = None
        self.time = self._time()
        self.x = self._x()
        self.metrics = self.asked or self._metrics()

    def column(self, at: int) -> list[Any]:
        return [row[at] for row in self.table.rows]

    def named(self, name: str, option: str) -> int:
        if name in self.table.names:
            return self.table.names.index(name)
        raise no_such(option, f"name a column of {self.table.source}", name, self.table.names)

    def _read(self, at: int, cell: Any) -> Cell:
        """The samples in a cell, as its column is written."""
        form = self.formats.get(at)
        if form is None or not isinstance(cell, str):
            return sheets.read_cell(cell, nan=self.options.nan)
        value = form.number(cell)
        if value is not None:
            return (value,)
        said = sheets.read_cell(cell, nan=self.options.nan)
        # A plain number among others with a unit could have any unit.
        return said if isinstance(said, NoSample) else sheets.BROKEN

    def _time(self) -> int | None:
        if self.options.time:
            at = self.named(self.options.time, "--time")
            self.moments = sheets.parse_dates(self.column(at), clock=True)
            if self.moments is None:
                odd = (
                    f"{str(cell)[:40]!r} on {self.place(row)}"
                    for row, cell in enumerate(self.column(at))
                    if sheets.parse_dates([cell], clock=True) is None
                )
                raise wrong_usage(
                    f"expected every cell of column {self.options.time!r} of {self.table.source} to say when,"
                    f" as 2023-08-24, 2023-08-24T13:00Z or seconds since 1970; found {next(odd, 'a mixture of forms')}"
                )
            return at
        for at in self._candidates(_TIMES):
            clock = self._base(at) in _TIMES
            # The first cell tells for most columns.
            first = [row[at] for row in self.table.rows[:1]]
            if first and sheets.parse_dates(first, clock=clock) is not None:
                self.moments = sheets.parse_dates(self.column(at), clock=clock)
                if self.moments is not None:
                    return at
        return None

    def _candidates(self, wanted: Sequence[str]) -> list[int]:
        """Columns that are no metric: those with a telling name first."""
        free = [at for at in range(len(self.table.names)) if at not in self.asked]
        if self.options.x in self.table.names:
            free = [self.table.names.index(self.options.x)]
        telling = [at for at in free if self._base(at) in wanted]
        telling.sort(key=lambda at: wanted.index(self._base(at)))
        return [*telling, *(at for at in free if at not in telling)]

    def _base(self, at: int) -> str:
        return self.table.names[at].rpartition(".")[2].strip().lower()

    def _x(self) -> int | None:
        if self.options.x:
            return self.named(self.options.x, "--x")
        for at in self._candidates(_LABELS):
            if self._base(at) in _LABELS and self._tells_apart(at):
                return at
        if self.time is not None:
            return self.time
        for at in self._candidates(_COUNTERS):
            if self._base(at) in _COUNTERS and self._counts(at):
                return at
        for at in self._candidates(()):
            cells = [cell for cell in self.column(at)[:100] if not sheets.is_empty(cell)]
            is_text = at not in self.formats and all(sheets.number(cell) is None for cell in cells)
            if is_text and self._tells_apart(at):
                return at
        return None

    def _tells_apart(self, at: int) -> bool:
        """Whether a column has another word for most rows: a branch's name labels nothing."""
        cells = [str(cell) for cell in self.column(at) if not sheets.is_empty(cell)]
        return 2 * len(cells) > len(self.table.rows) and 2 * len(set(cells)) > len(cells)

    def _counts(self, at: int) -> bool:
        """Whole numbers, a new one for most rows."""
        found = [sheets.number(cell) for cell in self.column(at)]
        whole = all(value is not None and value.is_integer() for value in found)
        return whole and 2 * len(set(found)) > len(found)

    def _metrics(self) -> list[int]:
        taken = {self.x, self.time}
        found = [at for at in range(len(self.table.names)) if at not in taken and self._is_metric(at)]
        counters = [at for at in found if self._is_counter(at)]
        self.counters = counters if len(counters) < len(found) else []
        return [at for at in found if at not in self.counters]

    def _is_counter(self, at: int) -> bool:
        """Whether a column counts the rows: whole numbers, each as much above the one before."""
        found = [sheets.number(cell) for cell in self.column(at)]
        first = found[:2]
        if len(found) < 5 or None in first or not all(float(v or 0).is_integer() for v in first):
            return False
        start, apart = first[0] or 0, (first[1] or 0) - (first[0] or 0)
        return apart > 0 and all(value == start + n * apart for n, value in enumerate(found))

    def _is_metric(self, at: int) -> bool:
        """Whether most cells that hold something hold numbers."""
        cells = (row[at] for row in self.table.rows)
        held = list(islice((c for c in cells if not sheets.is_empty(c) and not isinstance(c, bool)), _SAMPLE))
        numbers = sum(self._read(at, cell) is not sheets.BROKEN for cell in held)
        return numbers > 0 and 2 * numbers > len(held) and not (self._base(at) in _TIMES and self.time is not None)

    def place(self, row: int) -> str:
        """Where a row stands, for a person."""
        return f"line {self.table.lines[row]}" if self.table.lines else f"record {row + 1}"

    def rows(self) -> list[SheetRow]:
        labels = self.labels()
        order: Sequence[datetime | float | None] = self.order()
        whens = [sheets.utc(when) for when in self.moments] if self.moments else [None] * len(labels)
        return [
            SheetRow(label=labels[n], cells=self.cells(n, row), at=order[n], when=whens[n])
            for n, row in enumerate(self.table.rows)
        ]

    def labels(self) -> list[str]:
        if self.x is None:
            return [str(n) for n in range(1, len(self.table.rows) + 1)]
        if self.x == self.time and self.moments is not None:
            # A date is its own label, 20230824 too; a number of seconds is written out.
            return [
                cell.strip()
                if isinstance(cell, str) and (sheets.number(cell) is None or len(cell.strip()) == 8)
                else sheets.utc(when).strftime("%Y-%m-%dT%H:%M:%SZ")
                for cell, when in zip(self.column(self.x), self.moments, strict=True)
            ]
        texts = [str(cell).strip() if not sheets.is_empty(cell) else "" for cell in self.column(self.x)]
        if all(_SHA.fullmatch(text) for text in texts) and len({text[:_SHORT] for text in texts}) == len(set(texts)):
            return [text[:_SHORT] for text in texts]
        return [text or f"({self.place(n)})" for n, text in enumerate(texts)]

    def order(self) -> Sequence[datetime | float | None]:
        if self.moments is not None:
            return [sheets.utc(when) for when in self.moments]
        if self.x is None or not self._counts(self.x):
            return [None] * len(self.table.rows)
        return [sheets.number(cell) for cell in self.column(self.x)]

    def cells(self, n: int, row: Sequence[Any]) -> dict[str, Cell]:
        found = {}
        for at in self.metrics:
            value = self._read(at, row[at])
            if value is sheets.BROKEN:
                self.odd.note("unreadable", Severity.WARN, partial(self.unread, n, at))
            found[self.table.names[at]] = value
        return found

    def unread(self, n: int, at: int) -> Finding:
        name, where = self.table.names[at], self.place(n)
        unit = self.formats[at].unit if at in self.formats else ""
        wanted = f"a number of {unit}, as in the other cells," if unit else "a number"
        said = (
            f"expected {wanted} in column {name!r} on {where}, found {str(self.table.rows[n][at])[:40]!r};"
            " the point counts as one that could not be tried"
        )
        return warn("unreadable", said, path=self.table.source, metric=name, where=where)

    def notes(self) -> tuple[str, ...]:
        said = []
        if self.moments is not None:
            naive = sum(when.tzinfo is None for when in self.moments)
            if 0 < naive < len(self.moments):
                said.append(f"{naive:,} of {len(self.moments):,} moments have no time zone; they were read as UTC")
        if not self.options.x and self.x is not None and self.x != self.time:
            said.append(f"labels are column {self.table.names[self.x]!r} (--x names another)")
        if self.time is not None and self.time != self.x:
            said.append(f"ordered by column {self.table.names[self.time]!r} (--time names another)")
        if self.asked:
            return tuple(said)
        # Columns that somebody may miss among the metrics.
        for name in (self.table.names[at] for at in self.counters[:_FEW]):
            said += [f"column {name!r} counts the rows and was left out (--metric takes it)"]
        taken = {self.x, self.time, *self.metrics, *self.counters}
        odd = [(at, cell) for at in range(len(self.table.names)) if at not in taken if (cell := self._numberish(at))]
        for at, cell in odd[:_FEW]:
            why = f"most of its cells, as {cell[:40]!r}, are no numbers of one unit"
            said.append(f"column {self.table.names[at]!r} was left out: {why}")
        return tuple(said)

    def _numberish(self, at: int) -> str:
        """The first cell of a column that looks like measurements, and is none that can be read; empty for others."""
        if self._base(at) in {*_TIMES, *_LABELS}:
            return ""
        held = [c for c in self.column(at)[:_SAMPLE] if isinstance(c, str) and not sheets.is_empty(c)]
        fits = [cell for cell in held if _NUMBERISH.fullmatch(cell.strip())]
        return fits[0] if 2 * len(fits) > len(held) else ""
