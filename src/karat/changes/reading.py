"""Reading: whatever a series is kept in, as series: CSV, JSON, JSON Lines, logs, SQLite, the history of a golden.

What is odd about it comes along as findings; nothing is filled in, and nothing is left out in silence.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from shlex import quote

import msgspec

from karat.changes.assembling import assemble
from karat.changes.cells import of_number
from karat.changes.columns import Columns, sheet
from karat.changes.series import Series
from karat.changes.sheets import Mark, ReadOptions, Row, Sheet
from karat.findings import CannotVerify, Finding, UsageError

STDIN = "-"
_PLAIN = ReadOptions()


class Collected(msgspec.Struct, frozen=True, kw_only=True):
    """The series that were read, and what there is to say about them."""

    series: tuple[Series, ...]
    findings: tuple[Finding, ...] = ()
    notes: tuple[str, ...] = ()


def read(
    sources: Sequence[str] = (),
    options: ReadOptions = _PLAIN,
    *,
    logs: Sequence[str] = (),
    goldens: Sequence[str] = (),
) -> Collected:
    """All series of files (`sources`), of a folder of logs, and of the histories of goldens.

    With `logs`, `sources` are logs as well: a shell may have spelled out what a glob means.
    """
    sheets: list[Sheet] = []
    if logs:
        from karat.changes.reading_logs import read_logs  # noqa: PLC0415 - each reader for those who need it

        sheets.append(read_logs([*logs, *sources], options))
    else:
        for source in sources:
            sheets += read_file(source, options)
    for golden in goldens:
        from karat.changes.golden_history import read_history  # noqa: PLC0415

        sheets.append(read_history(golden, options))
    return _collected(sheets, options)


def _collected(sheets: Sequence[Sheet], options: ReadOptions) -> Collected:
    series: list[Series] = []
    notes: list[str] = []
    for one in sheets:
        made, said = assemble(one, options)
        series += made
        notes += [f"{one.source}: {note}" if len(sheets) > 1 else note for note in said]
    findings = tuple(finding for one in sheets for finding in one.findings)
    return Collected(series=tuple(series), findings=findings, notes=tuple(dict.fromkeys(notes)))


def read_file(source: str, options: ReadOptions) -> list[Sheet]:
    """The sheets in one file, whatever its format; a folder is one of logs."""
    path = options.root / source
    if source != STDIN and path.is_dir():
        from karat.changes.reading_logs import read_logs  # noqa: PLC0415

        return [read_logs([source], options)]
    data = _bytes(source, path)
    name = "stdin" if source == STDIN else source
    tables = _meant(_tables(data, name, path, options), options)
    sheets = [sheet(table, options) if isinstance(table, Columns) else table for table in tables]
    telling = [one for one in sheets if one.metrics]
    return telling or [_sheet(table, options) for table in tables if isinstance(table, Columns)]


def _meant(tables: Sequence[Columns | Sheet], options: ReadOptions) -> Sequence[Columns | Sheet]:
    """Of several tables in one document those that have a metric that was asked for."""
    if len(tables) < 2 or not options.metrics:
        return tables
    fits = [t for t in tables if isinstance(t, Columns) and t.has(options.metrics)]
    return fits or tables[:1]


def _sheet(table: Columns, options: ReadOptions) -> Sheet:
    made = sheet(table, options)
    if not made.metrics:
        raise CannotVerify(
            f"expected a column of numbers in {table.source}, found none; its columns are"
            f" {', '.join(table.names[:20])}",
            next_command="karat changes --help",
        )
    return made


def _bytes(source: str, path: Path) -> bytes:
    try:
        if source == STDIN:
            return sys.stdin.buffer.read()
        if path.is_char_device():  # /dev/zero has no end
            raise UsageError(
                f"expected {source} to be a file or a pipe, found a device",
                next_command="karat changes --help",
            )
        return path.read_bytes()
    except OSError as error:
        raise CannotVerify(
            f"expected to read {source}, but: {error.strerror or error}",
            next_command=f"ls -l {quote(source)}",
        ) from error


def _tables(data: bytes, name: str, path: Path, options: ReadOptions) -> Sequence[Columns | Sheet]:
    from karat.changes.reading_sqlite import HEAD, read_database  # noqa: PLC0415

    if data.startswith(HEAD):
        if name == "stdin":
            raise UsageError(
                "expected a text on stdin, found an SQLite database, which must be a file",
                next_command="karat changes --help",
            )
        return read_database(path, name, options)
    found = _log(data, name, options)
    if found is not None:
        return (found,)
    _no_other_s_options(name, options)
    found = _golden(data, name, options)
    tables = (found,) if found is not None else _text(data, name)
    if not tables:
        raise CannotVerify(
            f"expected {name} to be CSV, JSON, JSON Lines, an SQLite database or a folder of logs, found {_looks(data)}",
            next_command="karat changes --help",
        )
    return tables


def _no_other_s_options(name: str, options: ReadOptions) -> None:
    """What was asked for and cannot be done here is said, not passed over."""
    given = {
        "--table": (options.table, "an SQLite database"),
        "--stage": (options.stage, "the journal of a hunt"),
        "--name-pattern": (options.name_pattern, "logs"),
        "--year": (options.year, "logs"),
    }
    for option, (value, what) in given.items():
        if value:
            raise UsageError(
                f"expected {what} for {option}, found {name}, which is none",
                next_command="karat changes --help",
            )


def _looks(data: bytes) -> str:
    if not data.strip():
        return "an empty file"
    if b"\0" in data[:65536]:
        return "binary data"
    return f"text that begins with {data[:40].decode('utf-8', 'replace')!r}"


def _log(data: bytes, name: str, options: ReadOptions) -> Sheet | None:
    """A log, or what grep printed of logs: where --metric is an expression."""
    from karat.changes.log_matches import is_expression  # noqa: PLC0415

    if not options.metrics or not all(is_expression(metric) for metric in options.metrics):
        return None
    from karat.changes.reading_logs import grepped_logs, read_grepped, read_one_log  # noqa: PLC0415

    tables = _text(data, name)
    if any(set(options.metrics) & set(table.names) for table in tables):
        return None
    grepped = grepped_logs(data)
    if grepped:
        return read_grepped(grepped, name, options)
    found = read_one_log(data, name, options)
    # A misspelt column such as "time (ms)" looks like an expression, too; a table says which columns it has.
    return None if tables and not found.rows else found


def _golden(data: bytes, name: str, options: ReadOptions) -> Sheet | None:
    """A golden's curves, by step."""
    from karat.goldens.formats import read as read_golden  # noqa: PLC0415
    from karat.goldens.shapes import Series as Curves  # noqa: PLC0415

    if not data.lstrip(b"\xef\xbb\xbf \t\r\n").startswith(b"{") or b'"values"' not in data:
        return None
    reading = read_golden(data, name)
    if not isinstance(reading.golden, Curves) or not reading.golden.metrics:
        return None
    curves = reading.golden.metrics
    cells: dict[int, dict[str, tuple[float, ...] | Mark]] = {}
    number = partial(
        of_number, nan="missing"
    )  # "nan" is how a golden writes that there is no sample
    wanted = [metric for metric in curves if not options.metrics or metric in options.metrics]
    for metric in wanted:
        steps, values = curves[metric].steps.tolist(), curves[metric].values.tolist()
        for step, value in zip(steps, values, strict=True):
            cells.setdefault(step, {})[metric] = number(value)
    rows = [Row(label=str(step), cells=cells[step], at=float(step)) for step in sorted(cells)]
    return Sheet(source=name, metrics=tuple(wanted), rows=tuple(rows), findings=reading.findings)


def _text(data: bytes, name: str) -> tuple[Columns, ...]:
    from karat.changes.reading_csv import read_csv  # noqa: PLC0415
    from karat.changes.reading_json import read_json, read_lines  # noqa: PLC0415

    found = read_json(data, name)
    if found:
        return found
    begins = data.lstrip(b"\xef\xbb\xbf \t\r\n")[:1]
    table = read_lines(data, name) if begins in {b"{", b"["} else read_csv(data, name)
    return () if table is None else (table,)
