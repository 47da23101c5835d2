"""CSV of steps: a run's metrics as columns beside a column that counts steps.

step,loss,lr
1,10.8,0.001
"""

from __future__ import annotations

import csv
import math
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from shlex import quote

import numpy as np
from msgspec import structs

from karat.findings import Finding, Severity
from karat.goldens import formats, text_file
from karat.goldens.line_records import STEP_KEYS
from karat.goldens.series_json import step_of, text_number
from karat.goldens.shapes import Metric, Reading, Series, Shape
from karat.goldens.table_csv import Form, key_columns, names_columns
from karat.goldens.text_file import Few
from karat.runs.curves import EXPECTED, ends_behind, shaped, short_run
from karat.runs.log import read_log
from karat.runs.settings import RecordSettings
from karat.runs.tensorboard import read_events
from karat.runs.tfrecord import looks_like_records

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


# DOC-HERE reading: What a run left → a Reading: event files, JSON Lines, CSV of steps, logs, or any golden format.
#
# The content decides which it is, never the name. Nothing that stands in a file raises: it is a finding.

TENSORBOARD = "tensorboard"
_RAW = frozenset({TENSORBOARD, "series-csv", "series-lines", "log"})
"""What a run writes as it goes; all others are goldens already, and are taken as they are."""
_HEAD = 1 << 16
_MOST_FILES = 10_000
_LARGEST = 1 << 28
"""Bytes of a file that is read whole."""


def read_run(
    path: Path,
    settings: RecordSettings | None = None,
    *,
    shape: Shape | None = None,
    of_golden: RecordSettings | None = None,
) -> Reading:
    """The golden that a run's file or folder amounts to, and what there is to say about it.

    `shape` is what the caller will compare it with: a CSV of steps is a table for those who have one.
    `of_golden` is what to do with a series that is a golden already: nothing, unless someone asked.
    """
    settings = settings or RecordSettings()
    try:
        reading = _read(path, settings, shape)
    except OSError as error:
        return Reading(None, (_cannot_read(path, error),))
    findings = list(reading.findings)
    golden = reading.golden
    if isinstance(golden, Series):
        how = settings if reading.format in _RAW else of_golden
        if how is not None:
            golden, more = shaped(golden, how)
            findings += more
        elif (short := short_run(golden, settings.steps, EXPECTED)) is not None:
            findings.append(short)
        if not (golden.metrics or golden.scalars or golden.others):
            golden = None
    if golden is None and not any(f.severity is Severity.FAIL for f in findings):
        findings.append(_empty(reading.format))
    placed = tuple(f if f.path else replace(f, path=str(path)) for f in findings)
    return structs.replace(reading, golden=golden, findings=placed)


def _read(path: Path, settings: RecordSettings, shape: Shape | None) -> Reading:
    if path.is_dir():
        return _read_folder(path, settings, shape)
    if path.exists() and not path.is_file():
        return Reading(None, (_no_file(path),))
    with path.open("rb") as stream:
        head = stream.read(_HEAD)
    if _is_event_file(path, head):
        return _events([path])
    text = head.removeprefix(text_file.BOM).decode("utf-8", "replace")
    if shape != "table" and step_column(text.partition("\n")[0].strip()) is not None:
        return read_csv(path)
    if settings.log and not text.lstrip().startswith("{"):
        return _log(path, settings)
    return _whole(path, settings)


def _log(path: Path, settings: RecordSettings) -> Reading:
    log = read_log(path, settings.log)
    if log.golden is not None or log.stuck:
        return log.reading
    # Patterns that find nothing do not make it a log; what they did find is told if it is nothing else.
    whole = _whole(path, settings)
    told = () if whole.golden is not None else log.reading.findings
    return structs.replace(whole, findings=(*told, *whole.findings))


def _whole(path: Path, settings: RecordSettings) -> Reading:
    size = path.stat().st_size
    if size > _LARGEST:
        return Reading(None, (_too_large(size),))
    reading = formats.read(path.read_bytes())
    if reading.golden is None:
        hint = _log_hint(settings)
        findings = tuple(f if f.next else replace(f, next=hint) for f in reading.findings)
        reading = structs.replace(reading, findings=findings)
    return reading


def _log_hint(settings: RecordSettings) -> str:
    if settings.log:
        return "karat config --show-origin  # the patterns of [record] log match no line"
    return "edit karat.toml  # a log needs [record] log = { step = '…', \"lm loss\" = '…' }"


def _events(paths: Sequence[Path]) -> Reading:
    metrics, findings = read_events(paths)
    return Reading(Series(metrics) if metrics else None, findings, TENSORBOARD)


def _is_event_file(path: Path, head: bytes) -> bool:
    # A damaged first record is no record by its content; its name is the only hint then.
    return looks_like_records(head[:12]) or ("tfevents" in path.name and b"\0" in head)


def _read_folder(folder: Path, settings: RecordSettings, shape: Shape | None) -> Reading:
    files = _files(folder)
    if files is None:
        return Reading(None, (_too_many(folder),))
    events = [path for path in files if _opens_events(path)]
    runs = sorted({path.parent for path in events})
    if (
        folder in runs
    ):  # the run that was named; what `add_scalars` and hparams put below are others
        own = _events([path for path in events if path.parent == folder])
        below = [run for run in runs if run != folder]
        more = (_others_below(folder, below),) if below else ()
        return structs.replace(own, findings=(*own.findings, *more))
    if len(runs) > 1:
        return Reading(None, (_several_runs(folder, runs),))
    if events:
        return _events(events)
    if len(files) == 1:
        return _read(files[0], settings, shape)
    return Reading(None, (_no_run(folder, files),))


def _files(folder: Path) -> list[Path] | None:
    found = []
    for path in folder.rglob("*"):
        if path.is_file():
            found.append(path)
            if len(found) > _MOST_FILES:
                return None
    return sorted(found)


def _opens_events(path: Path) -> bool:
    with path.open("rb") as stream:
        return _is_event_file(path, stream.read(64))


def _cannot_read(path: Path, error: OSError) -> Finding:
    return Finding(
        kind="cannot-read",
        severity=Severity.FAIL,
        message=f"expected to read {path}, but: {error.strerror or error}",
        path=str(path),
        next=f"ls -ld {quote(str(path))}",
    )


def _no_file(path: Path) -> Finding:
    # A pipe can be read once, and its content must be looked at before it is read.
    return Finding(
        kind="cannot-read",
        severity=Severity.FAIL,
        message=f"expected a file or a folder at {path}, found a pipe or a device",
        next="karat record --help",
    )


def _empty(form: str | None) -> Finding:
    what = {TENSORBOARD: "scalars", "log": "lines that the patterns match"}.get(
        form or "", "values"
    )
    return Finding(kind="empty", severity=Severity.FAIL, message=f"expected {what}, found none")


def _too_large(size: int) -> Finding:
    return Finding(
        kind="unreadable",
        severity=Severity.FAIL,
        message=f"expected at most {_LARGEST:,} bytes in a file that is neither events, CSV of steps nor a log"
        f" with patterns, found {size:,}",
        next="edit karat.toml  # a log needs [record] log = { step = '…', \"lm loss\" = '…' }",
    )


def _several_runs(folder: Path, runs: Sequence[Path]) -> Finding:
    return Finding(
        kind="unreadable",
        severity=Severity.FAIL,
        message=f"expected the event files of one run in {folder}, found {len(runs)} runs:"
        f" {_below(folder, runs)}; name one",
        numbers={"runs": len(runs)},
        next=f"ls {quote(str(runs[0]))}",
    )


def _others_below(folder: Path, runs: Sequence[Path]) -> Finding:
    return Finding(
        kind="not-refreshed",
        severity=Severity.INFO,
        message=f"the event files of {folder} itself were read; {len(runs)} other run(s) below it were not:"
        f" {_below(folder, runs)}",
        numbers={"runs": len(runs)},
    )


def _below(folder: Path, runs: Sequence[Path]) -> str:
    names = ", ".join(run.relative_to(folder).as_posix() for run in runs[:8])
    return names + (f" and {len(runs) - 8} more" if len(runs) > 8 else "")


def _no_run(folder: Path, files: Sequence[Path]) -> Finding:
    found = f"{len(files)} files and no event file" if files else "no file"
    return Finding(
        kind="unreadable",
        severity=Severity.FAIL,
        message=f"expected event files in {folder}, or one other file, found {found}",
        next=f"ls -R {quote(str(folder))}",
    )


def _too_many(folder: Path) -> Finding:
    return Finding(
        kind="unreadable",
        severity=Severity.FAIL,
        message=f"expected the folder of one run, found more than {_MOST_FILES:,} files in {folder}",
        next=f"ls {quote(str(folder))}",
    )
