"""CSV of steps: a run's metrics as columns beside a column that counts steps.

step,loss,lr
1,10.8,0.001
"""

from __future__ import annotations

import csv
import math
from functools import partial
from pathlib import Path

import numpy as np

from karat.findings import Finding, Severity
from karat.goldens.hazards import Few
from karat.goldens.line_records import STEP_KEYS
from karat.goldens.series_block import step_of, text_number
from karat.goldens.shapes import Metric, Reading, Series
from karat.goldens.table_form import Form, key_columns, names_columns
from karat.runs.shaping import ends_behind

FORMAT = "series-csv"
_CLOCKS = frozenset({"wall time", "wall_time", "time", "timestamp", "_timestamp"})
"""What may stand before the step: when it was written, which no golden wants to know."""


def step_column(line: str) -> int | None:
    """Which column of a header counts the steps; None if the line is no such header."""
    try:
        cells = next(csv.reader([line]), [])
    except csv.Error:
        return None
    names = [cell.strip().lower() for cell in cells]
    if len(names) < 2 or len(set(names)) != len(names) or not all(names):
        return None
    at = 1 if names[0] in _CLOCKS else 0
    if names[at] not in STEP_KEYS:
        return None
    # A table whose rows have a name is a table, whatever its first column is called.
    columns = tuple(names)
    named = names_columns(columns) and key_columns(Form(columns, None)) != columns[:1]
    return None if named else at


def read_csv(path: Path) -> Reading:
    """The series in a CSV file whose header has a step column; an OSError is the caller's."""
    odd = Few()
    with path.open(encoding="utf-8-sig", errors="replace", newline="") as stream:
        rows = csv.reader(stream)
        try:
            header = [cell.strip() for cell in next(rows, [])]
            columns = _Columns(header, odd)
            for row in rows:
                if any(cell.strip() for cell in row):
                    columns.add(row, rows.line_num)
        except csv.Error as error:
            odd.add(_finding("unreadable", rows.line_num, f"expected CSV, found {error}"))
            return Reading(None, odd.findings(), FORMAT)
        if columns.again and (behind := ends_behind(columns.last, max(columns.lines))):
            odd.add(behind)
    return Reading(columns.series(), odd.findings(), FORMAT)


class _Columns:
    """Gathers the cells of each column by step."""

    def __init__(self, header: list[str], odd: Few) -> None:
        self.header = header
        self.at = step_column(",".join(header)) or 0
        self.cells: dict[str, dict[int, str]] = {
            name: {}
            for i, name in enumerate(header)
            if i != self.at and name.lower() not in _CLOCKS
        }
        self.lines: dict[int, int] = {}
        self.again = False
        self.odd = odd

    def add(self, row: list[str], line: int) -> None:
        if len(row) != len(self.header):
            self.odd.note(
                "ragged-row", Severity.FAIL, partial(_ragged, line, len(self.header), len(row))
            )
            row = (row + [""] * len(self.header))[: len(self.header)]
        step = _step(row[self.at])
        if step is None:
            self.odd.note("unreadable", Severity.FAIL, partial(_no_step, line, row[self.at]))
            return
        if step in self.lines:
            self.again = True
            self.odd.note(
                "superseded", Severity.INFO, partial(_again, line, step, self.lines[step])
            )
        self.lines.pop(step, None)  # so that the last one read is the last one here
        self.lines[step] = line
        for name, cell in zip(self.header, row, strict=True):
            if name in self.cells and cell.strip():
                self.cells[name][step] = cell.strip()

    @property
    def last(self) -> int:
        """The step that was read last."""
        return next(reversed(self.lines))

    def series(self) -> Series:
        metrics: dict[str, Metric] = {}
        others: dict[str, dict[str, str]] = {}
        for name, held in self.cells.items():
            numbers = {step: text_number(cell) for step, cell in held.items()}
            if held and all(number is None for number in numbers.values()):
                others[name] = {str(step): held[step] for step in sorted(held)}
            elif held:
                metrics[name] = self.metric(name, held, numbers)
        return Series(metrics, {}, others)

    def metric(self, name: str, held: dict[int, str], numbers: dict[int, float | None]) -> Metric:
        steps = sorted(held)
        values = []
        for step in steps:
            number = numbers[step]
            if number is None:
                make = partial(_no_number, self.lines[step], name, held[step])
                self.odd.note("unreadable", Severity.FAIL, make)
            values.append(math.nan if number is None else number)
        return Metric(np.array(steps, np.int64), np.array(values, np.float64))


def _step(cell: str) -> int | None:
    """The step in a cell; pandas writes whole numbers as `1.0` where a column has gaps."""
    text = cell.strip()
    return step_of(text.removesuffix(".0"))


def _ragged(line: int, wanted: int, found: int) -> Finding:
    return _finding("ragged-row", line, f"expected {wanted} fields on line {line}, found {found}")


def _no_step(line: int, cell: str) -> Finding:
    return _finding("unreadable", line, f'expected a step on line {line}, found "{cell[:40]}"')


def _no_number(line: int, name: str, cell: str) -> Finding:
    return _finding(
        "unreadable", line, f'expected a number on line {line}, found "{cell[:40]}"', metric=name
    )


def _again(line: int, step: int, before: int) -> Finding:
    message = (
        f"step {step} stands on line {before} and again on line {line}; the later one was read"
    )
    return _finding("superseded", line, message, severity=Severity.INFO)


def _finding(
    kind: str,
    line: int,
    message: str,
    *,
    metric: str | None = None,
    severity: Severity = Severity.FAIL,
) -> Finding:
    return Finding(
        kind=kind,
        severity=severity,
        message=message,
        metric=metric,
        where=f"line {line}",
        numbers={"line": line},
    )
