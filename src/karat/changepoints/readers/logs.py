"""Matches: the numbers that regular expressions find in the lines of a log.

A log may be of any size and hold any bytes; it is read line by line, lines are searched up to a bound, and an expression
that tries the same text over and over is called off.
"""

from __future__ import annotations

import os
import re
import statistics
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from functools import partial
from pathlib import Path
from shlex import quote
from typing import BinaryIO, Self

import msgspec
from msgspec import structs

from karat.changepoints.readers.log_files import (
    LogName,
    LogNames,
    commit_order,
    find_logs,
    natural_key,
    open_log,
    read_names,
    read_pattern,
    tail_of,
)
from karat.changepoints.readers.sheets import (
    BROKEN,
    MISSING,
    Cell,
    NoValue,
    ReadOptions,
    Sheet,
    SheetRow,
    Which,
    number_cell,
)
from karat.changepoints.series import Outcome
from karat.changepoints.signatures import TAIL, died_of, find_signature, normalise, without_ansi
from karat.findings import Finding, Severity, UsageError
from karat.goldens.series_json import text_number
from karat.goldens.text_file import Few
from karat.system.time_limit import PERIOD, StuckError, Watch

LONGEST = 8192
"""Characters of a line that are searched."""
_LITERAL = re.compile(r"[\w :;,<>=%#@!\"'/~&-]+")
_REPEATS = frozenset("*?{+")


class LogMetric(msgspec.Struct, frozen=True, kw_only=True):
    """A metric that is read off lines."""

    name: str
    expression: re.Pattern[str]
    literal: bytes
    """What must stand in a line that matches; empty if that cannot be said."""


def log_metric(text: str) -> LogMetric:
    """The metric of a regular expression; its name is that of its group, else what stands before it."""
    try:
        expression = re.compile(text)
    except re.error as error:
        raise UsageError(
            f"expected --metric to be a regular expression for logs, found {text!r}: {error}",
            next_command="karat changes --help",
        ) from error
    if not expression.groups:
        raise UsageError(
            f"expected --metric to have a group around the number, as 'MLUPS: ([0-9.]+)', found {text!r}",
            next_command="karat changes --help",
        )
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


class LogSearch:
    """Searches logs; keep it open over many of them."""

    def __init__(self, metrics: Sequence[LogMetric]) -> None:
        self.metrics = metrics
        self.odd: list[str] = []
        """Of the last log: texts that were matched and are no numbers."""
        self._watch = Watch()
        self._searches = 0

    def __enter__(self) -> Self:
        self._watch.__enter__()
        return self

    def __exit__(self, *about: object) -> None:
        self._watch.__exit__(None, None, None)

    def in_stream(self, stream: BinaryIO) -> dict[str, list[float]]:
        """Metric → every number, in order."""
        return self.in_lines(_lines(stream))

    def in_lines(self, lines: Iterable[bytes]) -> dict[str, list[float]]:
        """The same for lines that are at hand."""
        found: dict[str, list[float]] = {metric.name: [] for metric in self.metrics}
        self.odd = []
        for raw in lines:
            for metric in self.metrics:
                if metric.literal in raw:
                    value = self._search(metric, raw)
                    if value is not None:
                        found[metric.name].append(value)
        return found

    def after_last(self, tail: bytes) -> bytes:
        """What follows the last line of a tail that has a value."""
        lines = tail.splitlines(keepends=True)
        for at in range(len(lines) - 1, -1, -1):
            if any(
                m.literal in lines[at] and self._search(m, lines[at]) is not None
                for m in self.metrics
            ):
                return b"".join(lines[at + 1 :])
        return tail

    def _search(self, metric: LogMetric, raw: bytes) -> float | None:
        self._searches += 1
        self._watch.search = self._searches
        try:
            text = raw.decode("utf-8", "replace")[:LONGEST]
            match = metric.expression.search(text) or (
                metric.expression.search(without_ansi(text)) if "\x1b" in text else None
            )
        except StuckError as error:
            raise UsageError(
                f"expected the expression {metric.expression.pattern!r} to be done with a line in {PERIOD:g} s of"
                " processor time, found that it is not: it tries the same text over and over, as (a+)+ and (.*)* do",
                next_command="karat changes --help",
            ) from error
        finally:
            self._watch.search = 0
        if match is None:
            return None
        said = match.group(next(iter(metric.expression.groupindex), 1)) or ""
        value = text_number(said.strip().rstrip(".,;").replace(",", ""))
        if value is None:
            self.odd.append(said[:40])
        return value


def _lines(stream: BinaryIO) -> Iterator[bytes]:
    """Lines, cut to a bound; progress bars, which only return the carriage, count as lines."""
    while raw := stream.readline(4 * LONGEST):
        if len(raw) == 4 * LONGEST and not raw.endswith(b"\n"):
            while (rest := stream.readline(1 << 20)) and not rest.endswith(b"\n"):
                pass
        if b"\r" in raw:
            yield from raw.rstrip(b"\r\n").split(b"\r")
        else:
            yield raw


def choose(values: Sequence[float], which: Which) -> tuple[float, ...]:
    """The samples of a log that has several matches."""
    if not values or which == "all":
        return tuple(values)
    if which in {"first", "last"}:
        return (values[0 if which == "first" else -1],)
    ways = {"mean": statistics.fmean, "median": statistics.median, "min": min, "max": max}
    return (float(ways[which](values)),)  # type: ignore[operator]


# DOC-HERE reading_logs: Logs: one file per point, its value found by a regular expression, its place in time by its name.
#
# A log without a match is a crash if it says what its program died of, and else a missing point. What `grep` printed of
# many logs is read as those logs.

_CLOCK = re.compile(rb"[^:]{0,80}\d[T ]\d\d:\d\d\b.*", re.DOTALL)
"""A line that begins with the time of day, whose hour is no part of a file's name."""
_NO_IMAGE = re.compile(rb"manifest unknown|manifest for \S+ not found")
_NOT_STARTED = re.compile(rb"^docker: (Error response from daemon: .*)", re.MULTILINE)
_SHORT = 1 << 16
"""Bytes up to which a log may be that of a container that never ran."""
_LATE = 1 << 13
"""Bytes at the end of a log with a value that are looked at for a crash after it."""
_GREPPED = 1 << 26
"""Bytes up to which a single file may be what grep printed."""


def read_logs(words: Sequence[str], options: ReadOptions) -> Sheet:
    """One row per log."""
    metrics = _metrics(options)
    paths = find_logs(words, options.root)
    source = " ".join(words[:3]) + (" …" if len(words) > 3 else "")
    if len(paths) == 1:
        grepped = _grepped_file(options.root / paths[0])
        if grepped:
            return read_grepped(grepped, paths[0], options)
    odd = Few()
    names = _named(paths, options, odd)
    died: dict[str, str] = {}
    with LogSearch(metrics) as matches:
        cells = {path: _cells(path, matches, options, odd, died) for path in names.found}
    made = _sheet(source, metrics, names, cells, options, odd)
    return structs.replace(made, notes=(*made.notes, *_died_late(died)))


def _died_late(died: Mapping[str, str]) -> tuple[str, ...]:
    """Of a log that has its value and then a crash the value counts; nobody is to learn of the crash elsewhere."""
    if not died:
        return ()
    path, said = next(iter(died.items()))
    logs = "1 log has" if len(died) == 1 else f"{len(died):,} logs have"
    return (f"{logs} a value, which counts, and a crash after it: {path}: {said}",)


def _grepped_file(path: Path) -> dict[str, list[bytes]]:
    try:
        return grepped_logs(path.read_bytes()) if path.stat().st_size <= _GREPPED else {}
    except OSError:  # said where it is read as a log
        return {}


def grepped_logs(data: bytes) -> dict[str, list[bytes]]:
    """File → lines, if the bytes are what `grep` printed of several files whose names have an order; else nothing."""
    found: dict[str, list[bytes]] = {}
    lines = [line for line in data.splitlines() if line.strip() and line != b"--"]
    for line in lines:
        name, colon, rest = line.partition(b":")
        if colon and name and not _CLOCK.fullmatch(line):
            found.setdefault(os.fsdecode(name), []).append(rest)
    covered = sum(map(len, found.values()))
    if len(found) < 2 or covered < 0.9 * len(lines) or read_names(list(found)).kind == "name":
        return {}
    return found


def read_grepped(logs: Mapping[str, Sequence[bytes]], source: str, options: ReadOptions) -> Sheet:
    """One row per file of what `grep` printed."""
    metrics = _metrics(options)
    odd = Few()
    names = _named(list(logs), options, odd)
    with LogSearch(metrics) as matches:
        cells = {
            path: _marked(matches.in_lines(logs[path]), b"\n".join(logs[path]), options)
            for path in names.found
        }
    return _sheet(source, metrics, names, cells, options, odd)


def read_one_log(data: bytes, source: str, options: ReadOptions) -> Sheet:
    """One row per match: the points are in one log, in their order."""
    metrics = _metrics(options)
    with LogSearch(metrics) as matches:
        found = matches.in_lines(data.splitlines())
    length = max(map(len, found.values()), default=0)
    rows = [
        SheetRow(
            label=str(n + 1),
            cells={m: number_cell(v[n], nan=options.nan) for m, v in found.items() if n < len(v)},
        )
        for n in range(length)
    ]
    return Sheet(source=source, metrics=tuple(found), rows=tuple(rows), ordered=True,
                 notes=("every match in the log is a point; --logs makes every file one",))  # fmt: skip


def _metrics(options: ReadOptions) -> list[LogMetric]:
    if not options.metrics:
        raise UsageError(
            "expected --metric to say where the number is in a log, as --metric 'MLUPS: ([0-9.]+)', found none",
            next_command="karat changes --help",
        )
    metrics = [log_metric(text) for text in options.metrics]
    names = [metric.name for metric in metrics]
    if len(set(names)) < len(names):
        raise UsageError(
            f"expected a name of its own for every --metric, found {', '.join(names)};"
            " name their groups, as (?P<speed>[0-9.]+)",
            next_command="karat changes --help",
        )
    return metrics


def _named(paths: Sequence[str], options: ReadOptions, odd: Few) -> LogNames:
    if options.name_pattern:
        names = read_pattern(paths, options.name_pattern, year=options.year)
    else:
        names = read_names(paths, year=options.year)
    for path in paths:
        if path not in names.found:
            odd.note("unreadable", Severity.INFO, partial(_left_out, path, names.kind))
    if not names.found:
        raise UsageError(
            f"expected --name-pattern to fit the names of logs, found none of {len(paths):,} that it fits, {paths[0]!r} among them",
            next_command="karat changes --help",
        )
    return names


def _cells(
    path: str, matches: LogSearch, options: ReadOptions, odd: Few, died: dict[str, str]
) -> dict[str, Cell]:
    try:
        with open_log(options.root / path) as stream:
            found = matches.in_stream(stream)
        whole = all(found.values())
        tail = tail_of(options.root / path, _LATE if whole else TAIL)
    except (OSError, EOFError, zlib.error) as error:
        said = getattr(error, "strerror", None) or str(error)
        odd.note("cannot-read", Severity.WARN, partial(_cannot_read, path, said))
        return {metric.name: BROKEN for metric in matches.metrics}
    if matches.odd:
        odd.note("unreadable", Severity.WARN, partial(_no_number, path, matches.odd[0]))
    late = died_of(matches.after_last(tail)) if whole else ""
    if late:
        died[path] = late
    return _marked(found, tail, options)


def _marked(
    found: Mapping[str, Sequence[float]], tail: bytes, options: ReadOptions
) -> dict[str, Cell]:
    """Samples, or why there are none: a crash where the log names one."""
    none = MISSING if all(found.values()) else _reason(tail)
    return {metric: _samples(values, none, options) for metric, values in found.items()}


def _reason(tail: bytes) -> NoValue:
    """Why a log has no value: there was no image of that night, it could not be started, or what it died of."""
    if len(tail) < _SHORT and b"Traceback" not in tail:
        if _NO_IMAGE.search(tail):
            return MISSING
        refused = _NOT_STARTED.search(tail)
        if refused:
            return NoValue(Outcome.BROKEN, normalise(refused[1].decode("utf-8", "replace")))
    said = find_signature(tail)
    return NoValue(Outcome.CRASH, said) if said else MISSING


def _samples(values: Sequence[float], none: NoValue, options: ReadOptions) -> Cell:
    if not values:
        return none
    read = [number_cell(value, nan=options.nan) for value in choose(values, options.which)]
    samples = tuple(v for cell in read if not isinstance(cell, NoValue) for v in cell)
    return samples or read[0]


def _sheet(
    source: str, metrics: Sequence[LogMetric], names: LogNames,
    cells: Mapping[str, Mapping[str, Cell]], options: ReadOptions, odd: Few,
) -> Sheet:  # fmt: skip
    labels = _labels(names.found)
    paths, times, notes = _order(names, options, odd)
    rows = []
    for path in paths:
        name = names.found[path]
        when = name.at if name.dated else times.get(path)
        rows.append(
            SheetRow(label=labels[path], cells=cells[path], at=name.at, when=when, log=path)
        )
    return Sheet(
        source=source, metrics=tuple(metric.name for metric in metrics), rows=tuple(rows),
        findings=odd.findings(), notes=notes, ordered=names.kind in {"commit", "name"},
    )  # fmt: skip


def _labels(found: Mapping[str, LogName]) -> dict[str, str]:
    """What the names say: two logs of one date in two folders are repeats, in one folder they are two points."""
    seen: dict[tuple[str, str], int] = {}
    for path, name in found.items():
        key = (path.rpartition("/")[0], name.label)
        seen[key] = seen.get(key, 0) + 1
    return {
        path: name.label
        if seen[path.rpartition("/")[0], name.label] == 1
        else path.rpartition("/")[2]
        for path, name in found.items()
    }


def _order(
    names: LogNames, options: ReadOptions, odd: Few
) -> tuple[list[str], dict[str, datetime], tuple[str, ...]]:
    """The paths in order, when their commits were made, and what is to be said of it."""
    paths = sorted(names.found, key=natural_key)
    if names.kind == "name":
        return (
            paths,
            {},
            (
                "no date or commit is in the names of all logs; they are in the order of their names",
            ),
        )
    if names.kind != "commit":
        year = "" if options.year or names.kind == "date" else "names have no year (--year says it)"
        return paths, {}, (year,) if year else ()
    commits = {path: names.found[path].commit for path in paths}
    order = commit_order(tuple(dict.fromkeys(commits.values())), options.root)
    if order is None or not order.places:
        said = "no git repository here knows the commits in the names of logs; they are in the order of their names"
        return paths, {}, (said,)
    for path in paths:
        if commits[path] not in order.places:
            odd.note("unreadable", Severity.WARN, partial(_unknown_commit, path, commits[path]))
    known = [path for path in paths if commits[path] in order.places]
    known.sort(key=lambda path: order.places[commits[path]])
    times = {path: order.times[commits[path]] for path in known}
    return known, times, ("in the order of git's history",)


def _unknown_commit(path: str, commit: str) -> Finding:
    return Finding(
        kind="unreadable",
        severity=Severity.WARN,
        message=f"expected commit {commit} in the repository, found none; {path} has no place in the order and was left out",
        path=path,
        next="git fetch --all",
    )


def _left_out(path: str, kind: str) -> Finding:
    return Finding(
        kind="unreadable",
        severity=Severity.INFO,
        message=f"expected a {kind} in the name, as in the others, found {path!r}; it was left out",
        path=path,
    )


def _cannot_read(path: str, said: str) -> Finding:
    return Finding(
        kind="cannot-read",
        severity=Severity.WARN,
        message=f"expected to read {path}, but: {said}",
        path=path,
        next=f"ls -l {quote(path)}",
    )


def _no_number(path: str, said: str) -> Finding:
    return Finding(
        kind="unreadable",
        severity=Severity.WARN,
        message=f"expected a number where --metric matches, found {said!r}; it was passed over",
        path=path,
    )
