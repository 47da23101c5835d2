"""What a run left → a Reading: event files, JSON Lines, CSV of steps, logs, or any golden format.

The content decides which it is, never the name. Nothing that stands in a file raises: it is a finding.
"""

from __future__ import annotations

import csv
import re
import stat
from collections.abc import Mapping, Sequence
from pathlib import Path

from msgspec.structs import replace

from karat.findings import Severity, fail, info, warn
from karat.goldens import formats
from karat.goldens.series_json import step_of, text_number
from karat.goldens.series_lines import STEP_KEYS, LineRecord, series_of
from karat.goldens.shapes import Metric, Reading, Series, Shape
from karat.goldens.table_csv import Form, key_columns, names_columns
from karat.goldens.text_file import BOM, LONGEST_LINE, LimitedFindings, log_lines
from karat.report.words import few
from karat.runs.curves import EXPECTED, ends_behind, shaped, short_run
from karat.runs.tensorboard import looks_like_records, read_events
from karat.settings import STEP, RecordSettings
from karat.system.command import Command, quoted
from karat.system.foreign.limits import GOLDEN, TooLong, read_plain
from karat.system.time_limit import PERIOD, SearchTimer, StuckError

_TENSORBOARD, _CSV, _LOG = "tensorboard", "series-csv", "log"
_RAW = frozenset({_TENSORBOARD, _CSV, _LOG, "series-lines"})
"""What a run writes as it goes; all others are goldens already, and are taken as they are."""
_MOST_FILES = 10_000
_HEAD = 1 << 16  # Bytes by which a file's kind is told; most goldens have fewer.
_CLOCKS = frozenset({"wall time", "wall_time", "time", "timestamp", "_timestamp"})
"""What may stand before the step: when it was written, which no golden wants to know."""
_LOG_NEEDS = "edit karat.toml  # a log needs [record] log = { step = '…', \"lm loss\" = '…' }"


def read_run(path: Path, settings: RecordSettings | None = None, *, shape: Shape | None = None) -> Reading:
    """The golden that a run's file or folder amounts to, and what there is to say about it.

    `shape` is what the caller will compare it with: a CSV of steps is a table for those who have one.
    A series that is a golden already is taken as it is.
    """
    settings = settings or RecordSettings()
    try:
        mode = path.stat().st_mode
        if not (stat.S_ISREG(mode) or stat.S_ISDIR(mode)):
            # A pipe can be read once, and its content must be looked at before it is read.
            message = f"expected a file or a folder at {path}, found a pipe or a device"
            return Reading(None, (fail("cannot-read", message, path=str(path), next="karat record --help"),))
        reading = (_read_folder if stat.S_ISDIR(mode) else _read_file)(path, settings, shape)
    except OSError as error:
        message = f"expected to read {path}, but: {error.strerror or error}"
        unread = fail("cannot-read", message, path=str(path), next=Command("ls", "-ld", str(path)))
        return Reading(None, (unread,))
    findings = list(reading.findings)
    golden = reading.golden
    if isinstance(golden, Series):
        if reading.format in _RAW:
            golden, more = shaped(golden, settings)
            findings += more
        elif (short := short_run(golden, settings.steps, EXPECTED)) is not None:
            findings.append(short)
        if not (golden.metrics or golden.scalars or golden.others):
            golden = None
    if golden is None and not any(f.severity is Severity.FAIL for f in findings):
        nouns = {_TENSORBOARD: "scalars", _LOG: "lines that the patterns match"}
        what = nouns.get(reading.format or "", "values")
        findings.append(fail("empty", f"expected {what}, found none"))
    placed = tuple(f if f.path else replace(f, path=str(path)) for f in findings)
    return replace(reading, golden=golden, findings=placed)


def _read_file(path: Path, settings: RecordSettings, shape: Shape | None) -> Reading:
    with path.open("rb") as stream:
        head = stream.read(_HEAD)
    if _is_event_file(path, head):
        return _read_events([path])
    text = head.removeprefix(BOM).decode("utf-8", "replace")
    if shape != "table" and step_column(text.partition("\n")[0].strip()) is not None:
        return read_csv(path)
    log = None
    if settings.log and not text.lstrip().startswith("{"):
        log, stuck = read_log(path, settings.log)
        if log.golden is not None or stuck:
            return log
    # Patterns that find nothing do not make it a log; what they did find is reported if it is nothing else.
    odd = log.findings if log is not None else ()
    try:
        reading = formats.read(head if len(head) < _HEAD else read_plain(path, GOLDEN))
    except TooLong as error:
        message = f"expected events, CSV of steps, a log with patterns or a golden, but: {error.strerror}"
        return Reading(None, (*odd, fail("unreadable", message, next=_LOG_NEEDS)))
    if reading.golden is not None:
        return reading
    patterns = "karat config --show-origin  # the patterns of [record] log match no line"
    hint = patterns if settings.log else _LOG_NEEDS
    findings = tuple(f if f.next else replace(f, next=hint) for f in reading.findings)
    return replace(reading, findings=(*odd, *findings))


def _read_events(paths: Sequence[Path]) -> Reading:
    metrics, findings = read_events(paths)
    return Reading(Series(metrics) if metrics else None, findings, _TENSORBOARD)


def _is_event_file(path: Path, head: bytes) -> bool:
    # A damaged first record is no record by its content; its name is the only hint then.
    return looks_like_records(head[:12]) or ("tfevents" in path.name and b"\0" in head)


def _read_folder(folder: Path, settings: RecordSettings, shape: Shape | None) -> Reading:
    files: list[Path] = []
    for path in folder.rglob("*"):
        if path.is_file():
            files.append(path)
        if len(files) > _MOST_FILES:
            message = f"expected the folder of one run, found more than {_MOST_FILES:,} files in {folder}"
            return Reading(None, (fail("unreadable", message, next=Command("ls", str(folder))),))
    files.sort()
    events = []
    for path in files:
        with path.open("rb") as stream:
            if _is_event_file(path, stream.read(64)):
                events.append(path)
    runs = sorted({path.parent for path in events})
    others = [run for run in runs if run != folder]
    names = few([run.relative_to(folder).as_posix() for run in others], 8)
    if folder in runs:
        # The run that was named; what `add_scalars` and hparams put below are others.
        own = _read_events([path for path in events if path.parent == folder])
        were = "1 other run below it was" if len(others) == 1 else f"{len(others)} other runs below it were"
        message = f"the event files of {folder} itself were read; {were} not: {names}"
        note = info("not-refreshed", message, numbers={"runs": len(others)})
        return replace(own, findings=(*own.findings, *([note] if others else [])))
    if len(runs) > 1:
        said = f"expected the event files of one run in {folder}, found {len(runs)} runs: {names}; name one"
        several = fail("unreadable", said, numbers={"runs": len(runs)}, next=Command("ls", str(runs[0])))
        return Reading(None, (several,))
    if events:
        return _read_events(events)
    if len(files) == 1:
        return _read_file(files[0], settings, shape)
    found = f"{len(files)} files and no event file" if files else "no file"
    message = f"expected event files in {folder}, or one other file, found {found}"
    return Reading(None, (fail("unreadable", message, next=Command("ls", "-R", str(folder))),))


def step_column(line: str) -> int | None:
    """Which column of a CSV header counts the steps; None if the line is no such header."""
    try:
        cells = next(csv.reader([line]), [])
    except csv.Error:
        return None
    names = tuple(cell.strip().lower() for cell in cells)
    if len(names) < 2 or len(set(names)) != len(names) or not all(names):
        return None
    at = 1 if names[0] in _CLOCKS else 0
    if names[at] not in STEP_KEYS:
        return None
    # A table whose rows have a name is a table, whatever its first column is called.
    named = names_columns(names) and key_columns(Form(names, None)) != names[:1]
    return None if named else at


def read_csv(path: Path) -> Reading:
    """The series in a CSV file whose header has a step column; an OSError is the caller's.

    step,loss,lr
    1,10.8,0.001
    """
    odd = LimitedFindings()
    found: dict[int, LineRecord] = {}  # In the order in which they were read.
    again = False
    with path.open(encoding="utf-8-sig", errors="replace", newline="") as stream:
        rows = csv.reader(stream)
        try:
            header = [cell.strip() for cell in next(rows, [])]
            at, width = step_column(",".join(header)) or 0, len(header)
            for row in rows:
                if not any(cell.strip() for cell in row):
                    continue
                line = rows.line_num
                if len(row) != width:
                    odd.on_line("ragged-row", line, f"expected {width} fields on line {line}, found {len(row)}")
                cells = {name: cell.strip() for name, cell in zip(header, row, strict=False) if cell.strip()}
                # pandas writes whole numbers as `1.0` where a column has gaps.
                counted = cells.get(header[at], "")
                step = step_of(counted.removesuffix(".0"))
                if step is None:
                    odd.on_line("unreadable", line, f'expected a step on line {line}, found "{counted[:40]}"')
                    continue
                if step in found:
                    again, before = True, found.pop(step).line
                    message = f"step {step} stands on line {before} and again on line {line}; the later one was read"
                    odd.on_line("superseded", line, message, severity=Severity.INFO)
                fields = {
                    name: cell if (number := text_number(cell)) is None else number
                    for name, cell in cells.items()
                    if name.lower() not in _CLOCKS
                }
                found[step] = LineRecord({**fields, header[at]: step}, line)
        except csv.Error as error:
            odd.on_line("unreadable", rows.line_num, f"expected CSV, found {error}")
            return Reading(None, odd.findings(), _CSV)
    if again and (behind := ends_behind(next(reversed(found)), max(found))):
        odd.add(behind)
    return Reading(series_of([*found.values()], header[at], odd), odd.findings(), _CSV)


def read_log(path: Path, patterns: Mapping[str, str]) -> tuple[Reading, bool]:
    """What the patterns find, no golden if nothing; and whether one had to be called off, so that nobody knows.

    A log may be of any size, and is read line by line; a line is searched up to a bound, because an expression's time
    may grow with the square of its length. An OSError is the caller's.
    """
    with path.open("rb") as stream, _LogReader(patterns) as found:
        try:
            for line, raw, cut in log_lines(stream):
                text = raw.decode("utf-8", "replace").rstrip("\r\n")
                if cut or len(text) > LONGEST_LINE:
                    found.too_long.add(line)
                found.look(text[:LONGEST_LINE], line)
        except StuckError:
            name, line = found.pattern, found.line
            stuck = fail(
                "unreadable",
                f'expected the pattern of "{name}" to be done with line {line} in {PERIOD:g} s of processor time,'
                " found that it is not: it tries the same text over and over, as (a+)+ and (.*)* do",
                metric=name,
                where=f"line {line}",
                numbers={"line": line},
                next=f"edit karat.toml  # the pattern of {quoted(name)} in [record] log",
            )
            return Reading(None, (stuck,), _LOG), True
    return found.reading(), False


class _LogReader(SearchTimer):
    """Gathers what the patterns find. The step is the one on the same line, else the last one seen."""

    def __init__(self, patterns: Mapping[str, str]) -> None:
        super().__init__()
        self.step_pattern = re.compile(patterns[STEP])
        self.patterns = [(name, re.compile(p)) for name, p in patterns.items() if name != STEP]
        self.values: dict[str, dict[int, float]] = {name: {} for name, _ in self.patterns}
        self.odd = LimitedFindings()
        self.step: int | None = None
        self.furthest: int | None = None
        self.too_long: set[int] = set()
        self.again = 0
        self.searches = 0
        self.line = 0
        self.pattern = STEP  # Where it is, for the one who has to say which pattern was called off.

    def look(self, text: str, line: int) -> None:
        self.searches += 1
        self.line, self.pattern, self.search = line, STEP, self.searches
        match = self.step_pattern.search(text)
        if match:
            text_of_step = match.group(1) or ""
            self.step = step_of(text_of_step.strip().replace(",", ""))
            if self.step is None:
                self.unusable("a step", text_of_step, STEP, line)
        for name, pattern in self.patterns:
            self.pattern = name
            match = pattern.search(text)
            if match:
                self.take(name, match.group(1) or "", line)
        self.search = 0

    def unusable(self, expected: str, text: str, name: str, line: int) -> None:
        message = f'expected {expected} where the pattern of "{name}" matches on line {line}, found "{text[:40]}"'
        self.odd.on_line("unreadable", line, message, metric=name)

    def take(self, name: str, text: str, line: int) -> None:
        if self.step is None:
            message = f'expected a step on line {line} or before it, found "{name}" without one; it was left out'
            self.odd.on_line("unreadable", line, message, metric=name, severity=Severity.WARN)
            return
        value = text_number(text.strip())
        if value is None:
            self.unusable("a number", text, name, line)
            value = float("nan")
        self.again += self.step in self.values[name]
        self.values[name][self.step] = value
        if self.furthest is None or self.step > self.furthest:
            self.furthest = self.step

    def reading(self) -> Reading:
        metrics = {name: Metric.of(held) for name, held in self.values.items() if held}
        for name in self.values if metrics else ():
            if name not in metrics:
                said = f'expected the pattern of "{name}" to match somewhere in the log, found no line that it matches'
                self.odd.add(warn("lost-metric", said, metric=name, next="karat config --show-origin"))
        if self.too_long:
            long = len(self.too_long)
            are = "1 line is" if long == 1 else f"{long} lines are"
            message = f"{are} longer than {LONGEST_LINE:,} characters; only the beginning was searched"
            self.odd.add(info("unreadable", message, numbers={"lines": long}))
        if self.again:
            are = "1 value is" if self.again == 1 else f"{self.again} values are"
            message = f"{are} of steps that the log had before, as after a restart; the later ones were read"
            again = info("superseded", message, numbers={"replaced": self.again})
            self.odd.add(ends_behind(self.step, self.furthest) or again)
        return Reading(Series(metrics) if metrics else None, self.odd.findings(), _LOG)
