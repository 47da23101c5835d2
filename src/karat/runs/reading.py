"""What a run left → a Reading: event files, JSON Lines, CSV of steps, logs, or any golden format.

The content decides which it is, never the name. Nothing that stands in a file raises: it is a finding.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from shlex import quote

from msgspec import structs

from karat.findings import Finding, Severity
from karat.goldens import formats, hazards
from karat.goldens.shapes import Reading, Series, Shape
from karat.runs.csv_steps import read_csv, step_column
from karat.runs.event_records import looks_like_records
from karat.runs.log_lines import read_log
from karat.runs.settings import RecordSettings
from karat.runs.shaping import EXPECTED, shaped, short_run
from karat.runs.tensorboard import read_events

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
    text = head.removeprefix(hazards.BOM).decode("utf-8", "replace")
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
