"""Columns: which one of a table has labels, which has moments, which are metrics; and its rows, read. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from datetime import datetime
from fnmatch import fnmatchcase
from functools import partial
from itertools import islice
from typing import Any

import msgspec

from karat.changes.cells import is_nothing, number, read
from karat.changes.moments import moments, utc
from karat.changes.sheets import BROKEN, Mark, ReadOptions, Row, Sheet
from karat.findings import Finding, Severity, UsageError, suggest
from karat.goldens.hazards import Few

_TIMES = (
    "timestamp",
    "datetime",
    "date",
    "time",
    "when",
    "at",
    "night",
    "day",
    "created",
    "created_at",
    "commit_date",
)
_LABELS = ("label", "commit", "sha", "git_commit", "revision", "rev", "hash", "version", "release", "tag", "build",
           "image", "point", "name", "id", "run", "run_id", "night")  # fmt: skip
_COUNTERS = (
    "step",
    "iteration",
    "iter",
    "index",
    "n",
    "#",
    "i",
    "x",
    "build",
    "run",
    "number",
    "epoch",
    "",
)
_SHA = re.compile(r"[0-9a-f]{40}|[0-9a-f]{64}")
_SHORT = 10
_SAMPLE = 2000
"""Cells of a column that are looked at to see whether it is a metric."""


class Columns(msgspec.Struct, frozen=True, kw_only=True):
    """A table as it was read: names, rows of cells, and on which line each row stood."""

    source: str
    names: tuple[str, ...]
    rows: Sequence[Sequence[Any]]
    lines: Sequence[int] = ()
    units: Mapping[str, str] = msgspec.field(default_factory=dict)
    decimal_comma: bool = False
    findings: tuple[Finding, ...] = ()


def sheet(table: Columns, options: ReadOptions) -> Sheet:
    """The table as rows with labels and metrics."""
    chosen = _Chosen(table, options)
    return Sheet(
        source=table.source,
        metrics=tuple(table.names[column] for column in chosen.metrics),
        rows=tuple(chosen.rows()),
        units=table.units,
        findings=(*table.findings, *chosen.odd.findings()),
        notes=chosen.notes(),
    )


class _Chosen:
    """What each column is."""

    def __init__(self, table: Columns, options: ReadOptions) -> None:
        self.table, self.options = table, options
        self.odd = Few()
        self.asked = self._asked()
        self.moments: list[datetime] | None = None
        self.time = self._time()
        self.x = self._x()
        self.metrics = self.asked or self._metrics()

    def column(self, at: int) -> list[Any]:
        return [row[at] for row in self.table.rows]

    def named(self, name: str, option: str) -> int:
        if name in self.table.names:
            return self.table.names.index(name)
        raise UsageError(
            f"expected {option} to name a column of {self.table.source}, found {name!r}{suggest(name, self.table.names)};"
            f" there are {', '.join(self.table.names[:20])}",
            next_command="karat changes --help",
        )

    def _asked(self) -> list[int]:
        found: list[int] = []
        for name in self.options.metrics:
            fits = [
                i
                for i, known in enumerate(self.table.names)
                if known == name or fnmatchcase(known, name)
            ]
            found += fits or [self.named(name, "--metric")]
        return list(dict.fromkeys(found))

    def _time(self) -> int | None:
        if self.options.time:
            at = self.named(self.options.time, "--time")
            self.moments = moments(self.column(at), clock=True)
            if self.moments is None:
                raise UsageError(
                    f"expected every cell of column {self.options.time!r} of {self.table.source} to say when,"
                    f" as 2023-08-24, 2023-08-24T13:00Z or seconds since 1970; {self._no_moment(at)}",
                    next_command="karat changes --help",
                )
            return at
        for at in self._candidates(_TIMES):
            clock = self._base(at) in _TIMES
            if not self._looks_timely(at, clock=clock):
                continue
            self.moments = moments(self.column(at), clock=clock)
            if self.moments is not None:
                return at
        return None

    def _no_moment(self, at: int) -> str:
        for row, cell in enumerate(self.column(at)):
            if moments([cell], clock=True) is None:
                return f"found {str(cell)[:40]!r} on {self.place(row)}"
        return "found a mixture of forms"

    def _looks_timely(self, at: int, *, clock: bool) -> bool:
        """Whether the first cell says when: most columns need no second look."""
        return bool(self.table.rows) and moments([self.table.rows[0][at]], clock=clock) is not None

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
        texts = (at for at in self._candidates(()) if self._is_text(at) and self._tells_apart(at))
        return next(texts, None)

    def _tells_apart(self, at: int) -> bool:
        """Whether a column has another word for most rows: a branch's name labels nothing."""
        cells = [str(cell) for cell in self.column(at) if not is_nothing(cell)]
        return 2 * len(cells) > len(self.table.rows) and 2 * len(set(cells)) > len(cells)

    def _is_text(self, at: int) -> bool:
        return all(number(cell) is None for cell in self.column(at)[:100] if not is_nothing(cell))

    def _counts(self, at: int) -> bool:
        """Whole numbers, a new one for most rows."""
        found = [number(cell) for cell in self.column(at)]
        whole = all(value is not None and value.is_integer() for value in found)
        return whole and 2 * len(set(found)) > len(found)

    def _metrics(self) -> list[int]:
        taken = {self.x, self.time}
        free = (at for at in range(len(self.table.names)) if at not in taken)
        return [at for at in free if self._is_metric(at)]

    def _is_metric(self, at: int) -> bool:
        """Whether most cells that hold something hold numbers."""
        cells = (row[at] for row in self.table.rows)
        held = list(
            islice((c for c in cells if not is_nothing(c) and not isinstance(c, bool)), _SAMPLE)
        )
        comma = self.table.decimal_comma
        numbers = sum(read(cell, decimal_comma=comma) is not BROKEN for cell in held)
        return (
            numbers > 0
            and 2 * numbers > len(held)
            and not (self._base(at) in _TIMES and self.time is not None)
        )

    def place(self, row: int) -> str:
        """Where a row stands, for a person."""
        return f"line {self.table.lines[row]}" if self.table.lines else f"record {row + 1}"

    def rows(self) -> list[Row]:
        labels = self.labels()
        order: Sequence[datetime | float | None] = self.order()
        whens = [utc(when) for when in self.moments] if self.moments else [None] * len(labels)
        return [
            Row(label=labels[n], cells=self.cells(n, row), at=order[n], when=whens[n])
            for n, row in enumerate(self.table.rows)
        ]

    def labels(self) -> list[str]:
        if self.x is None:
            return [str(n) for n in range(1, len(self.table.rows) + 1)]
        if self.x == self.time and self.moments is not None:
            return [
                _moment_label(cell, when)
                for cell, when in zip(self.column(self.x), self.moments, strict=True)
            ]
        texts = [str(cell).strip() if not is_nothing(cell) else "" for cell in self.column(self.x)]
        if all(_SHA.fullmatch(text) for text in texts) and len(
            {text[:_SHORT] for text in texts}
        ) == len(set(texts)):
            return [text[:_SHORT] for text in texts]
        return [text or f"({self.place(n)})" for n, text in enumerate(texts)]

    def order(self) -> Sequence[datetime | float | None]:
        if self.moments is not None:
            return [utc(when) for when in self.moments]
        nothing = [None] * len(self.table.rows)
        if self.x is None or not self._counts(self.x):
            return nothing
        return [number(cell) for cell in self.column(self.x)]

    def cells(self, n: int, row: Sequence[Any]) -> dict[str, tuple[float, ...] | Mark]:
        found = {}
        for at in self.metrics:
            value = read(row[at], nan=self.options.nan, decimal_comma=self.table.decimal_comma)
            if value is BROKEN:
                self.odd.note("unreadable", Severity.WARN, partial(self.unread, n, at))
            found[self.table.names[at]] = value
        return found

    def unread(self, n: int, at: int) -> Finding:
        name, where = self.table.names[at], self.place(n)
        return Finding(
            kind="unreadable",
            severity=Severity.WARN,
            message=f"expected a number in column {name!r} on {where}, found {str(self.table.rows[n][at])[:40]!r};"
            " the point counts as one that could not be tried",
            path=self.table.source,
            metric=name,
            where=where,
        )

    def notes(self) -> tuple[str, ...]:
        said = []
        if self.moments is not None:
            naive = sum(when.tzinfo is None for when in self.moments)
            if 0 < naive < len(self.moments):
                said.append(
                    f"{naive:,} of {len(self.moments):,} moments have no time zone; they were read as UTC"
                )
        if not self.options.x and self.x is not None and self.x != self.time:
            said.append(f"labels are column {self.table.names[self.x]!r} (--x names another)")
        if self.time is not None and self.time != self.x:
            said.append(f"ordered by column {self.table.names[self.time]!r} (--time names another)")
        return tuple(said)


def _moment_label(cell: Any, when: datetime) -> str:
    if isinstance(cell, str) and number(cell) is None:
        return cell.strip()
    if isinstance(cell, str) and len(cell.strip()) == 8:  # 20230824 reads well as it is
        return cell.strip()
    return utc(when).strftime("%Y-%m-%dT%H:%M:%SZ")
