"""Read series from CSV, JSON, JSON Lines, logs, SQLite or the history of a golden.

What is odd about a source comes along as findings; nothing is filled in, and nothing is left out silently. Rows are
put in order, repeats joined, and missing points named: a series by the day (or hour, or week) shows which days it
lacks, and a weekday on which it never has a point is not missing.
"""

from __future__ import annotations

import re
import sys
from collections import Counter
from collections.abc import Sequence
from datetime import datetime, timedelta
from fnmatch import fnmatchcase
from functools import partial
from itertools import pairwise
from pathlib import Path

import msgspec
from msgspec import structs

from karat.changepoints.readers import sheets
from karat.changepoints.readers.sheets import NoSample, ReadOptions, Sheet, SheetRow
from karat.changepoints.readers.tables import SourceTable, read_csv, read_database, read_json, read_lines, read_table
from karat.changepoints.series import Better, Observation, Series, wrong_usage
from karat.findings import CannotVerify, Finding
from karat.report.words import few
from karat.system.command import Command
from karat.system.foreign.limits import read_plain

STDIN = "-"
_PLAIN = ReadOptions()
_HELP = "karat changes --help"
_FORMS = ("%Y-%m-%d", "%m-%d", "%Y-%m-%d-%H", "%m-%d-%H", "%Y%m%d", "%Y-%m-%dT%H:%M:%SZ", "%Y-%m-%d %H:%M")
_LEAST = 5
_SLACK = 0.05  # Of a step: a night that began an hour late, or when clocks were changed, is still that night's.
_HOUR, _DAY = 3600.0, 86400.0


_PER_SECOND = re.compile(r"(/|_per_|\bper )s(ec|econd)?s?\b")
_HIGHER = "accuracy auc bandwidth bleu f1 flops fps gflops mfu mlups precision qps recall rps score speed speedup tflops throughput tps"
_LOWER = "allocations duration elapsed error errors latency loss memory ms ns p50 p90 p95 p99 perplexity ppl rss seconds sec time us walltime"


class SeriesCollection(msgspec.Struct, frozen=True, kw_only=True):
    """The series that were read, and what there is to say about them."""

    series: tuple[Series, ...]
    findings: tuple[Finding, ...] = ()
    notes: tuple[str, ...] = ()


def read(
    sources: Sequence[str] = (), options: ReadOptions = _PLAIN, *, logs: Sequence[str] = (), goldens: Sequence[str] = ()
) -> SeriesCollection:
    """All series of files (`sources`), of a folder of logs, and of the histories of goldens.

    With `logs`, `sources` are logs as well: a shell may have expanded a glob.
    """
    found: list[Sheet] = []
    if logs:
        from karat.changepoints.readers.logs import read_logs

        found.append(read_logs([*logs, *sources], options))
    else:
        for source in sources:
            found += read_file(source, options)
    for golden in goldens:
        from karat.changepoints.readers.golden_history import read_history

        found.append(read_history(golden, options))
    series: list[Series] = []
    notes: list[str] = []
    for sheet in found:
        made, said = assemble(sheet, options)
        series += made
        notes += [f"{sheet.source}: {note}" if len(found) > 1 else note for note in said]
    findings = tuple(finding for sheet in found for finding in sheet.findings)
    notes = list(dict.fromkeys(notes))
    return SeriesCollection(series=tuple(series), findings=findings, notes=tuple(notes))


def read_file(source: str, options: ReadOptions) -> list[Sheet]:
    """The sheets in one file, whatever its format; a folder is one of logs."""
    path = options.root / source
    if source != STDIN and path.is_dir():
        from karat.changepoints.readers.logs import read_logs

        return [read_logs([source], options)]
    try:
        if source == STDIN:
            data = sys.stdin.buffer.read()
        elif path.is_fifo() and str(path).startswith("/dev/fd/"):  # the shell's `<(…)`
            data = path.read_bytes()
        elif path.exists() and not path.is_file():
            raise wrong_usage(f"expected {source} to be a file, found a device or a pipe; - reads from stdin")
        else:
            data = read_plain(path)
    except OSError as error:
        said = f"expected to read {source}, but: {error.strerror or error}"
        raise CannotVerify(said, next_command=Command("ls", "-l", source)) from error
    name = "stdin" if source == STDIN else source
    tables = _tables(data, name, path, options)
    if len(tables) > 1 and options.metrics:
        # Of several tables in one document, those that have a metric that was asked for.
        named = [t for t in tables if isinstance(t, SourceTable) and any(map(t.fits, options.metrics))]
        tables = named or tables[:1]
    found = [read_table(table, options) if isinstance(table, SourceTable) else table for table in tables]
    with_metrics = [sheet for sheet in found if sheet.metrics]
    if not with_metrics:
        names = [column for table in tables if isinstance(table, SourceTable) for column in table.names]
        said = f"expected a column of numbers in {name}, found none; its columns are {few(names, 20)}"
        raise CannotVerify(said, next_command=_HELP)
    return with_metrics


def _tables(data: bytes, name: str, path: Path, options: ReadOptions) -> Sequence[SourceTable | Sheet]:
    from karat.changepoints.readers.logs import grepped_logs, is_expression, read_grepped

    if data.startswith(b"SQLite format 3\0"):
        if name == "stdin":
            raise wrong_usage("expected a text on stdin, found an SQLite database, which must be a file")
        return read_database(path, name, options)
    if options.metrics and all(map(is_expression, options.metrics)) and (grepped := grepped_logs(data)):
        return (read_grepped(grepped, name, options),)
    given = {"--table": (options.table, "an SQLite database"), "--stage": (options.stage, "the journal of a hunt")}
    for option, (value, what) in given.items():
        if value:  # what was asked for and cannot be done here is not ignored
            raise wrong_usage(f"expected {what} for {option}, found {name}, which is none")
    is_json = data.lstrip(b"\xef\xbb\xbf \t\r\n")[:1] in {b"{", b"["}
    tables = read_json(data, name) or read_lines(data, name) if is_json else read_csv(data, name)
    if not tables:
        looks = f"text that begins with {data[:40].decode('utf-8', 'replace')!r}" if data.strip() else "an empty file"
        said = f"expected {name} to be CSV, JSON, JSON Lines, an SQLite database or what grep printed of logs, found {looks}"
        raise CannotVerify(said, next_command=_HELP)
    return tables


def assemble(sheet: Sheet, options: ReadOptions) -> tuple[tuple[Series, ...], tuple[str, ...]]:
    """One series per metric, oldest first, and what was done to get there, in sentences."""
    notes = list(sheet.notes)
    rows: Sequence[SheetRow] = sheet.rows
    if not sheet.ordered and rows and all(row.at is not None for row in rows):
        rows = sorted(rows, key=lambda row: row.at)  # type: ignore[arg-type, return-value] # one kind per sheet
    # Rows of one label become one row, where the first of them is.
    places: dict[str, list[SheetRow]] = {}
    for row in rows:
        places.setdefault(row.label, []).append(row)
    joined = sum(len(held) > 1 for held in places.values())
    if joined:
        rows = []
        for held in places.values():
            metrics = dict.fromkeys(name for row in held for name in row.cells)
            cells = {name: sheets.join_cells(row.cells.get(name, sheets.MISSING) for row in held) for name in metrics}
            rows.append(structs.replace(held[0], cells=cells) if len(held) > 1 else held[0])
        labels = "1 label occurs" if joined == 1 else f"{joined:,} labels occur"
        notes.append(f"{labels} more than once; the values are repeats of one point")
    rows = rows if sheet.ordered else add_missing_points(rows)
    first = _place(rows, options.since) if options.since else 0
    known = {metric: direction(metric, options) or sheet.better.get(metric) for metric in sheet.metrics}
    unsaid = [name for name, said in known.items() if not (said or sheet.ordered)]
    learned = {n: better for n in unsaid if (better := learned_direction(n, sheet.units.get(n, "")))}
    for better in ("higher", "lower"):
        names = [name for name, guess in learned.items() if guess == better]
        if names:
            said = few([f"`{name}`" for name in names], 4)
            notes.append(f"{better} is taken to be better for {said}, by name or unit; --better says otherwise")
    made = (
        Series(
            metric=metric,
            observations=tuple(_observation(row, metric) for row in rows[first:]),
            better=known[metric] or learned.get(metric),
            unit=sheet.units.get(metric, ""),
            source=sheet.source,
        )
        for metric in sheet.metrics
    )
    return tuple(made), tuple(notes)


def _place(rows: Sequence[SheetRow], text: str) -> int:
    """How many rows are before a label or a moment."""
    for n, row in enumerate(rows):
        if row.label == text:
            return n
    when = sheets.parse_date(text)
    moments = [row.at for row in rows if isinstance(row.at, datetime)]
    if when is None or len(moments) != len(rows) or not rows:
        ends = f"{rows[0].label} … {rows[-1].label}" if rows else "no points"
        raise wrong_usage(f"expected --since to be a label or a moment of the series ({ends}), found {text!r}")
    limit = sheets.utc(when)
    return sum(one < limit for one in moments)


def _observation(row: SheetRow, metric: str) -> Observation:
    cell = row.cells.get(metric, sheets.MISSING)
    made = partial(Observation, label=row.label, when=row.when, log=row.log)
    return made(outcome=cell.outcome, signature=cell.signature) if isinstance(cell, NoSample) else made(values=cell)


def direction(metric: str, options: ReadOptions) -> Better | None:
    """What --better says of a metric: by its name, by a glob, or for all others."""
    if metric in options.better:
        return options.better[metric]
    fits = (better for glob, better in options.better.items() if glob and fnmatchcase(metric, glob))
    return next(fits, options.better.get(""))


def learned_direction(metric: str, unit: str) -> Better | None:
    """Which direction is better, by a unit or by the words of a name; None where they say nothing, or both."""
    words = set(re.findall(r"[a-z0-9]+", re.sub(r"([a-z])([A-Z])", r"\1 \2", f"{metric} {unit}").lower()))
    if _PER_SECOND.search(f"{metric} {unit}".lower()):
        return "higher"
    higher, lower = (not words.isdisjoint(known.split()) for known in (_HIGHER, _LOWER))
    return None if higher == lower else "higher" if higher else "lower"


def add_missing_points(rows: Sequence[SheetRow]) -> tuple[SheetRow, ...]:
    """The rows, with one without a value for each that is missing; unchanged where none can be named."""
    moments = [row.at for row in rows if isinstance(row.at, datetime)]
    if len(moments) != len(rows):
        return tuple(rows)
    step = regular_step(moments)
    # The form in which the rows' labels write their moments.
    pairs = list(zip(rows, moments, strict=True))
    fits = (form for form in _FORMS if sum(at.strftime(form) == row.label for row, at in pairs) >= 0.8 * len(rows))
    form = next(fits, "")
    if step is None or not form:
        return tuple(rows)
    if step % _DAY == 0 and "%H" in form:
        form = "%Y-%m-%d"  # the hour of a night that was not is nobody's to say
    idle: set[int] = set()  # weekdays that never have a point, over two weeks at least
    if step == _DAY and (moments[-1] - moments[0]).days >= 14:
        idle = set(range(7)) - {moment.weekday() for moment in moments}
    out = [rows[0]] if rows else []
    for (before, at), (row, moment) in pairwise(pairs):
        missing = round((moment - at).total_seconds() / step) - 1
        for n in range(1, min(missing, 100_000) + 1):
            then = at + timedelta(seconds=n * step)
            if then.weekday() not in idle:
                when = then if before.when is not None else None
                out.append(SheetRow(label=then.strftime(form), cells={}, at=then, when=when))
        out.append(row)
    # One date that is far off would invent a thousand nights.
    return tuple(out) if len(out) <= 3 * len(rows) + 14 else tuple(rows)


def regular_step(moments: Sequence[datetime]) -> float | None:
    """The seconds between neighbours, if nearly all are one step apart and all are whole steps apart."""
    apart = [(b - a).total_seconds() for a, b in pairwise(moments) if b > a]
    if len(apart) + 1 < _LEAST:
        return None
    common = Counter(round(seconds / 60) * 60.0 for seconds in apart if seconds >= 30).most_common(3)
    if not common:
        return None
    candidates = [_HOUR, _DAY, 7 * _DAY, *(seconds for seconds, _ in common)]
    step = max(candidates, key=lambda one: sum(abs(s / one - 1) <= _SLACK for s in apart))
    steps = [seconds / step for seconds in apart]
    off = [abs(n - round(n)) if round(n) else 1.0 for n in steps]
    single = sum(round(n) == 1 for n in steps)
    return step if max(off) <= _SLACK and 2 * single > len(steps) else None
