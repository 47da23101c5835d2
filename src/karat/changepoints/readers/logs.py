"""Logs: one file per point, its value found by a regular expression, its place in time by its name.

A log without a match is a crash if it says what its program died of, else a missing point. What `grep` printed of
many logs is read as those logs. A log may be of any size and hold any bytes; an expression that tries the same text over
and over is called off.
"""

from __future__ import annotations

import os
import re
import statistics
import zlib
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from datetime import datetime

import msgspec
from msgspec import structs

from karat.changepoints.readers import log_files, sheets
from karat.changepoints.readers.sheets import Cell, NoSample, ReadOptions, Sheet, SheetRow, Which
from karat.changepoints.series import Outcome, wrong_usage
from karat.changepoints.signatures import TAIL, died_of, find_signature, normalise, without_ansi
from karat.findings import info, warn
from karat.goldens.series_json import text_number
from karat.goldens.text_file import LONGEST_LINE, LimitedFindings, log_lines
from karat.system.command import Command
from karat.system.time_limit import PERIOD, SearchTimer, StuckError

_LITERAL = re.compile(r"[\w :;,<>=%#@!\"'/~&-]+")
_REPEATS = frozenset("*?{+")
_NO_IMAGE = re.compile(rb"manifest unknown|manifest for \S+ not found")
_NOT_STARTED = re.compile(rb"^docker: (Error response from daemon: .*)", re.MULTILINE)
_SHORT = 1 << 16  # bytes up to which a log may be that of a container that never ran
_LATE = 1 << 13  # bytes at the end of a log with a value that are looked at for a crash after it
_GREPPED = 1 << 26  # bytes up to which a single file may be what grep printed


class LogMetric(msgspec.Struct, frozen=True, kw_only=True):
    name: str
    expression: re.Pattern[str]
    literal: bytes  # What must stand in a line that matches; empty if that cannot be said.


def log_metric(text: str) -> LogMetric:
    """The metric of a regular expression; its name is that of its group, else what stands before it."""
    try:
        expression = re.compile(text)
    except re.error as error:
        raise wrong_usage(f"expected --metric to be a regular expression for logs, found {text!r}: {error}") from error
    if not expression.groups:
        raise wrong_usage(f"expected --metric to have a group around the number, as 'MLUPS: ([0-9.]+)', found {text!r}")
    literal = literal_of(text)
    name = next(iter(expression.groupindex), "") or literal.strip(" :;,<>=#@!\"'/~&-") or text
    return LogMetric(name=name, expression=expression, literal=literal.encode())


def literal_of(text: str) -> str:
    """The plain letters at the beginning of an expression, which every match has; empty for those with choices."""
    match = _LITERAL.match(text)
    if match is None or "|" in text or "(?" in text.replace("(?P<", "").replace("(?:", ""):
        return ""
    found = match.group()
    return found[:-1] if text[match.end() : match.end() + 1] in _REPEATS else found


def is_expression(text: str) -> bool:
    """Whether a metric looks like an expression for logs, and not like the name of a column."""
    try:
        return re.compile(text).groups > 0
    except re.error:
        return False


class LogSearch(SearchTimer):
    """Searches logs; keep it open over many of them."""

    def __init__(self, metrics: Sequence[LogMetric]) -> None:
        super().__init__()
        self.metrics = metrics
        self.odd: list[str] = []  # of the last log: texts that were matched and are no numbers
        self._searches = 0

    def in_lines(self, lines: Iterable[bytes]) -> dict[str, list[float]]:
        """Metric → every number, in order."""
        found: dict[str, list[float]] = {metric.name: [] for metric in self.metrics}
        self.odd = []
        for raw in lines:
            for metric in self.metrics:
                if metric.literal in raw and (value := self._search(metric, raw)) is not None:
                    found[metric.name].append(value)
        return found

    def after_last(self, tail: bytes) -> bytes:
        """What follows the last line of a tail that has a value."""
        lines = tail.splitlines(keepends=True)
        for at in range(len(lines) - 1, -1, -1):
            if any(m.literal in lines[at] and self._search(m, lines[at]) is not None for m in self.metrics):
                return b"".join(lines[at + 1 :])
        return tail

    def _search(self, metric: LogMetric, raw: bytes) -> float | None:
        self._searches += 1
        self.search = self._searches
        try:
            text = raw.decode("utf-8", "replace")[:LONGEST_LINE]
            search = metric.expression.search
            match = search(text) or (search(without_ansi(text)) if "\x1b" in text else None)
        except StuckError as error:
            raise wrong_usage(
                f"expected the expression {metric.expression.pattern!r} to be done with a line in {PERIOD:g} s of"
                " processor time, found that it is not: it tries the same text over and over, as (a+)+ and (.*)* do"
            ) from error
        finally:
            self.search = 0
        if match is None:
            return None
        said = match.group(next(iter(metric.expression.groupindex), 1)) or ""
        value = text_number(said.strip().rstrip(".,;").replace(",", ""))
        if value is None:
            self.odd.append(said[:40])
        return value


def choose(values: Sequence[float], which: Which) -> tuple[float, ...]:
    """The samples of a log that has several matches."""
    if not values or which == "all":
        return tuple(values)
    if which in {"first", "last"}:
        return (values[0 if which == "first" else -1],)
    ways = {"mean": statistics.fmean, "median": statistics.median, "min": min, "max": max}
    return (float(ways[which](values)),)  # type: ignore[operator]


_CLOCK = re.compile(rb"[^:]{0,80}\d[T ]\d\d:\d\d\b.*", re.DOTALL)
"""A line that begins with the time of day, whose hour is no part of a file's name."""


def read_logs(words: Sequence[str], options: ReadOptions) -> Sheet:
    """One row per log."""
    metrics = _metrics(options)
    paths = log_files.find_logs(words, options.root)
    source = " ".join(words[:3]) + (" …" if len(words) > 3 else "")
    if len(paths) == 1:
        only, grepped = options.root / paths[0], {}
        with suppress(OSError):  # reported where it is read as a log
            grepped = grepped_logs(only.read_bytes()) if only.stat().st_size <= _GREPPED else {}
        if grepped:
            return read_grepped(grepped, paths[0], options)
    odd = LimitedFindings()
    names = _named(paths, options, odd)
    died: dict[str, str] = {}
    with LogSearch(metrics) as matches:
        cells = {path: _cells(path, matches, options, odd, died) for path in names.found}
    made = _sheet(source, metrics, names, cells, options, odd)
    if not died:
        return made
    path, said = next(iter(died.items()))
    logs = "1 log has" if len(died) == 1 else f"{len(died):,} logs have"
    note = f"{logs} a value, which counts, and a crash after it: {path}: {said}"
    return structs.replace(made, notes=(*made.notes, note))


def grepped_logs(data: bytes) -> dict[str, list[bytes]]:
    """File → lines, if the bytes are what `grep` printed of several files whose names have an order; else nothing."""
    found: dict[str, list[bytes]] = {}
    lines = [line for line in data.splitlines() if line.strip() and line != b"--"]
    for line in lines:
        name, colon, rest = line.partition(b":")
        if colon and name and not _CLOCK.fullmatch(line):
            found.setdefault(os.fsdecode(name), []).append(rest)
    covered = sum(map(len, found.values()))
    if len(found) < 2 or covered < 0.9 * len(lines) or log_files.read_names(list(found)).kind == "name":
        return {}
    return found


def read_grepped(logs: Mapping[str, Sequence[bytes]], source: str, options: ReadOptions) -> Sheet:
    """One row per file of what `grep` printed."""
    metrics = _metrics(options)
    odd = LimitedFindings()
    names = _named(list(logs), options, odd)
    with LogSearch(metrics) as matches:
        cells = {path: _marked(matches.in_lines(logs[path]), b"\n".join(logs[path]), options) for path in names.found}
    return _sheet(source, metrics, names, cells, options, odd)


def read_one_log(data: bytes, source: str, options: ReadOptions) -> Sheet:
    """One row per match: the points are in one log, in their order."""
    metrics = _metrics(options)
    with LogSearch(metrics) as matches:
        found = matches.in_lines(data.splitlines())
    length = max(map(len, found.values()), default=0)
    rows = []
    for n in range(length):
        cells = {m: sheets.number_cell(values[n], nan=options.nan) for m, values in found.items() if n < len(values)}
        rows.append(SheetRow(label=str(n + 1), cells=cells))
    return Sheet(
        source=source,
        metrics=tuple(found),
        rows=tuple(rows),
        ordered=True,
        notes=("every match in the log is a point; --logs makes every file one",),
    )


def _metrics(options: ReadOptions) -> list[LogMetric]:
    if not options.metrics:
        said = "expected --metric to say where the number is in a log, as --metric 'MLUPS: ([0-9.]+)', found none"
        raise wrong_usage(said)
    metrics = [log_metric(text) for text in options.metrics]
    names = [metric.name for metric in metrics]
    if len(set(names)) < len(names):
        said = f"expected a name of its own for every --metric, found {', '.join(names)}"
        raise wrong_usage(f"{said}; name their groups, as (?P<speed>[0-9.]+)")
    return metrics


def _named(paths: Sequence[str], options: ReadOptions, odd: LimitedFindings) -> log_files.LogNames:
    if options.name_pattern:
        names = log_files.read_pattern(paths, options.name_pattern, year=options.year)
    else:
        names = log_files.read_names(paths, year=options.year)
    for path in paths:
        if path not in names.found:
            said = f"expected a {names.kind} in the name, as in the others, found {path!r}; it was left out"
            odd.add(info("unreadable", said, path=path))
    if not names.found:
        found = f"none of {len(paths):,} that it fits, {paths[0]!r} among them"
        raise wrong_usage(f"expected --name-pattern to fit the names of logs, found {found}")
    return names


def _cells(
    path: str, matches: LogSearch, options: ReadOptions, odd: LimitedFindings, died: dict[str, str]
) -> dict[str, Cell]:
    try:
        with log_files.open_log(options.root / path) as stream:
            found = matches.in_lines(line for _, line, _ in log_lines(stream))
        whole = all(found.values())
        tail = log_files.tail_of(options.root / path, _LATE if whole else TAIL)
    except (OSError, EOFError, zlib.error) as error:
        said = getattr(error, "strerror", None) or str(error)
        said = f"expected to read {path}, but: {said}"
        odd.add(warn("cannot-read", said, path=path, next=Command("ls", "-l", path)))
        return {metric.name: sheets.BROKEN for metric in matches.metrics}
    if matches.odd:
        said = f"expected a number where --metric matches, found {matches.odd[0]!r}; it was ignored"
        odd.add(warn("unreadable", said, path=path))
    late = died_of(matches.after_last(tail)) if whole else ""
    if late:
        died[path] = late
    return _marked(found, tail, options)


def _marked(found: Mapping[str, Sequence[float]], tail: bytes, options: ReadOptions) -> dict[str, Cell]:
    """Samples, or why there are none: a crash where the log names one."""
    none = sheets.MISSING
    if not all(found.values()):
        # There was no image of that night, it could not be started, or it says what it died of.
        never_ran = len(tail) < _SHORT and b"Traceback" not in tail
        refused = _NOT_STARTED.search(tail) if never_ran else None
        if never_ran and _NO_IMAGE.search(tail):
            none = sheets.MISSING
        elif refused:
            none = NoSample(Outcome.BROKEN, normalise(refused[1].decode("utf-8", "replace")))
        elif said := find_signature(tail):
            none = NoSample(Outcome.CRASH, said)
    chosen = {metric: choose(values, options.which) for metric, values in found.items()}
    return {
        metric: sheets.join_cells(sheets.number_cell(value, nan=options.nan) for value in values) if values else none
        for metric, values in chosen.items()
    }


def _sheet(
    source: str,
    metrics: Sequence[LogMetric],
    names: log_files.LogNames,
    cells: Mapping[str, Mapping[str, Cell]],
    options: ReadOptions,
    odd: LimitedFindings,
) -> Sheet:
    # Two logs of one date in two folders are repeats; in one folder they are two points.
    seen = Counter((path.rpartition("/")[0], name.label) for path, name in names.found.items())
    paths, times, notes = _order(names, options, odd)
    rows = []
    for path in paths:
        name = names.found[path]
        when = name.at if name.dated else times.get(path)
        folder, _, file = path.rpartition("/")
        label = name.label if seen[folder, name.label] == 1 else file
        rows.append(SheetRow(label=label, cells=cells[path], at=name.at, when=when, log=path))
    return Sheet(
        source=source,
        metrics=tuple(metric.name for metric in metrics),
        rows=tuple(rows),
        findings=odd.findings(),
        notes=notes,
        ordered=names.kind in {"commit", "name"},
    )


def _order(
    names: log_files.LogNames, options: ReadOptions, odd: LimitedFindings
) -> tuple[list[str], dict[str, datetime], tuple[str, ...]]:
    """The paths in order, when their commits were made, and what is to be said of it."""
    paths = sorted(names.found, key=log_files.natural_key)
    if names.kind == "name":
        said = "no date or commit is in the names of all logs; they are in the order of their names"
        return paths, {}, (said,)
    if names.kind != "commit":
        year = "" if options.year or names.kind == "date" else "names have no year (--year says it)"
        return paths, {}, (year,) if year else ()
    commits = {path: names.found[path].commit for path in paths}
    order = log_files.commit_order(tuple(dict.fromkeys(commits.values())), options.root)
    if not order:
        said = "no git repository here knows the commits in the names of logs; they are in the order of their names"
        return paths, {}, (said,)
    for path in paths:
        if commits[path] not in order:
            said = f"expected commit {commits[path]} in the repository, found none; {path} was left out"
            odd.add(warn("unreadable", said, path=path, next="git fetch --all"))
    known = sorted((path for path in paths if commits[path] in order), key=lambda path: order[commits[path]][0])
    return known, {path: order[commits[path]][1] for path in known}, ("in the order of git's history",)
