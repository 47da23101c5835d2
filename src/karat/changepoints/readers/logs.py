"""Logs: one file per point, its value found by a regular expression, its place in time by its name.

A log without a match is a crash if it says what its program died of, else a missing point. What `grep` printed of
many logs is read as those logs. A log may be of any size and hold any bytes; an expression that tries the same text over
and over is called off. Links to folders are not followed, so that none is a loop.
"""

from __future__ import annotations

import os
import re
import shutil
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from pathlib import Path, PurePath
from typing import Literal, TypeAlias

import msgspec

from karat.changepoints.readers import sheets
from karat.changepoints.readers.sheets import Cell, NoSample, ReadOptions, Sheet, SheetRow
from karat.changepoints.series import Outcome, wrong_usage
from karat.changepoints.signatures import TAIL, find_signature, normalise, without_ansi
from karat.findings import CannotVerify, UsageError, info, warn
from karat.goldens.series_json import text_number
from karat.goldens.text_file import LONGEST_LINE, LimitedFindings, log_lines
from karat.system.command import Command
from karat.system.git import find_root, resolve, run_git
from karat.system.time_limit import PERIOD, SearchTimer, StuckError

_LITERAL = re.compile(r"[\w :;,<>=%#@!\"'/~&-]+")
_REPEATS = frozenset("*?{+")
_NO_IMAGE = re.compile(rb"manifest unknown|manifest for \S+ not found")
_NOT_STARTED = re.compile(rb"^docker: (Error response from daemon: .*)", re.MULTILINE)
_SHORT = 1 << 16  # bytes up to which a log may be that of a container that never ran


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
        found: dict[str, list[float]] = {metric.name: [] for metric in self.metrics}
        self.odd = []
        for raw in lines:
            for metric in self.metrics:
                if metric.literal in raw and (value := self._search(metric, raw)) is not None:
                    found[metric.name].append(value)
        return found

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


Found: TypeAlias = tuple[Mapping[str, Sequence[float]], bytes]
"""The values of each metric in a log, and its end."""

Look = Callable[[str, LogSearch], Found]  # Reads the log of that path.
_CLOCK = re.compile(rb"[^:]{0,80}\d[T ]\d\d:\d\d\b.*", re.DOTALL)
"""A line that begins with the time of day, whose hour is no part of a file's name."""


def read_logs(words: Sequence[str], options: ReadOptions) -> Sheet:
    def look(path: str, search: LogSearch) -> Found:
        with (options.root / path).open("rb") as stream:
            found = search.in_lines(line for _, line, _ in log_lines(stream))
            stream.seek(max(stream.seek(0, os.SEEK_END) - TAIL, 0))
            return found, stream.read(TAIL)

    source = " ".join(words[:3]) + (" …" if len(words) > 3 else "")
    return _sheet(lambda: find_logs(words, options.root), source, options, look)


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
    def look(path: str, search: LogSearch) -> Found:
        return search.in_lines(logs[path]), b"\n".join(logs[path])

    return _sheet(lambda: list(logs), source, options, look)


def _sheet(find: Callable[[], Sequence[str]], source: str, options: ReadOptions, look: Look) -> Sheet:
    if not options.metrics:
        said = "expected --metric to say where the number is in a log, as --metric 'MLUPS: ([0-9.]+)', found none"
        raise wrong_usage(said)
    metrics = [log_metric(text) for text in options.metrics]
    called = tuple(metric.name for metric in metrics)
    if len(set(called)) < len(called):
        said = f"expected a name of its own for every --metric, found {', '.join(called)}"
        raise wrong_usage(f"{said}; name their groups, as (?P<speed>[0-9.]+)")
    odd, paths = LimitedFindings(), find()
    names = read_names(paths)
    for path in paths:
        if path not in names.found:
            said = f"expected a {names.kind} in the name, as in the others, found {path!r}; it was left out"
            odd.add(info("unreadable", said, path=path))
    with LogSearch(metrics) as search:
        cells = {path: _cells(path, search, look, odd) for path in names.found}
    # Two logs of one date in two folders are repeats; in one folder they are two points.
    seen = Counter((path.rpartition("/")[0], name.label) for path, name in names.found.items())
    ordered, times, notes = _order(names, options, odd)
    rows = []
    for path in ordered:
        name = names.found[path]
        when = name.at if names.kind == "date" else times.get(path)  # without a year nobody knows
        folder, _, file = path.rpartition("/")
        label = name.label if seen[folder, name.label] == 1 else file
        rows.append(SheetRow(label=label, cells=cells[path], at=name.at, when=when, log=path))
    fixed = names.kind in {"commit", "name"}
    return Sheet(source=source, metrics=called, rows=tuple(rows), findings=odd.findings(), notes=notes, ordered=fixed)


def _cells(path: str, search: LogSearch, look: Look, odd: LimitedFindings) -> dict[str, Cell]:
    """Samples, or why there are none: no image of that night, one that could not be started, or what the log names."""
    try:
        found, tail = look(path, search)
    except OSError as error:
        said = f"expected to read {path}, but: {error.strerror or error}"
        odd.add(warn("cannot-read", said, path=path, next=Command("ls", "-l", path)))
        return {metric.name: sheets.BROKEN for metric in search.metrics}
    if search.odd:
        said = f"expected a number where --metric matches, found {search.odd[0]!r}; it was ignored"
        odd.add(warn("unreadable", said, path=path))
    none = sheets.MISSING
    never_ran = len(tail) < _SHORT and b"Traceback" not in tail
    if all(found.values()) or (never_ran and _NO_IMAGE.search(tail)):
        pass
    elif never_ran and (refused := _NOT_STARTED.search(tail)):
        none = NoSample(Outcome.BROKEN, normalise(refused[1].decode("utf-8", "replace")))
    elif said := find_signature(tail):
        none = NoSample(Outcome.CRASH, said)
    # Of several values in one log, the last counts.
    return {metric: sheets.number_cell(values[-1]) if values else none for metric, values in found.items()}


def _order(
    names: LogNames, options: ReadOptions, odd: LimitedFindings
) -> tuple[list[str], dict[str, datetime], tuple[str, ...]]:
    """The paths in order, when their commits were made, and what is to be said of it."""
    paths = sorted(names.found, key=natural_key)
    if names.kind == "name":
        said = "no date or commit is in the names of all logs; they are in the order of their names"
        return paths, {}, (said,)
    if names.kind != "commit":
        return paths, {}, ()
    commits = {path: names.found[path].commit for path in paths}
    order = commit_order(tuple(dict.fromkeys(commits.values())), options.root)
    if not order:
        said = "no git repository here knows the commits in the names of logs; they are in the order of their names"
        return paths, {}, (said,)
    for path in paths:
        if commits[path] not in order:
            said = f"expected commit {commits[path]} in the repository, found none; {path} was left out"
            odd.add(warn("unreadable", said, path=path, next="git fetch --all"))
    known = sorted((path for path in paths if commits[path] in order), key=lambda path: order[commits[path]][0])
    return known, {path: order[commits[path]][1] for path in known}, ("in the order of git's history",)


_DATE = re.compile(r"(?<!\d)(\d{4})([-_.]?)(\d{2})\2(\d{2})(?!\d{3})")
_HOURS = re.compile(r"[-_.T ]?(\d{2})(?:[-_.:h]?(\d{2})(?:[-_.:m]?(\d{2}))?)?(?:\.\d+)?Z?(?!\d)")
_DAY = re.compile(r"(?<![\d.])(\d{2})([-_])(\d{2})(?:[-_](\d{2}))?(?!\d)")
_COMMIT = re.compile(r"(?<![0-9A-Za-z])(?=[a-f]*[0-9])[0-9a-f]{7,64}(?![0-9A-Za-z])")
_ENOUGH = 0.8  # of the names must have what the others are ordered by; the rest are left out, and named
_LEAP, _BEFORE_LEAP = 2000, 1999
_ENDINGS = frozenset({".log", ".txt", ".out", ".err"})


class LogName(msgspec.Struct, frozen=True, kw_only=True):
    """What a name says."""

    label: str
    at: datetime | None = None
    commit: str = ""


class LogNames(msgspec.Struct, frozen=True, kw_only=True):
    """What the names of all logs say: one kind for all."""

    kind: Literal["date", "day", "commit", "name"]
    found: Mapping[str, LogName]  # Those that say it; others are left out.


def read_names(paths: Sequence[str]) -> LogNames:
    """What most of the paths say: a date, else month and day, else a commit, else only their order."""
    for kind, read in (("date", _dated), ("day", _day), ("commit", _commit)):
        # What the file's name says; else what the folders say, the nearest first.
        parts = {path: map(read, reversed(path.split("/"))) for path in paths}
        found = {path: name for path in paths if (name := next(filter(None, parts[path]), None))}
        if kind == "commit" and 2 * sum(name.commit.isdecimal() for name in found.values()) > len(found):
            continue  # one short hash in 280 has no letter; more of them are numbers
        if found and len(found) >= _ENOUGH * len(paths):
            named = _with_years(found) if kind == "day" else found
            return LogNames(kind=kind, found=named)  # type: ignore[arg-type]
    names = {path: PurePath(path) for path in paths}
    stems = {path: name.stem if name.suffix in _ENDINGS else name.name for path, name in names.items()}
    return LogNames(kind="name", found={path: LogName(label=stem) for path, stem in stems.items()})


def natural_key(text: str) -> list[tuple[int, int, str]]:
    """A key that puts run-9 before run-10."""
    parts = re.split(r"(\d+)", text)
    return [(0, int(p[:4000]), "") if p.isdecimal() and p.isascii() else (1, 0, p) for p in parts if p]


def _dated(name: str) -> LogName | None:
    for match in _DATE.finditer(name):
        year, month, day = int(match[1]), int(match[3]), int(match[4])
        date = _moment(year, month, day) if 1970 <= year <= 2100 else None
        if date is None:
            continue
        clock = _HOURS.match(name, match.end())
        if clock:
            hours = [int(part) for part in clock.groups("0")]
            with_clock = _moment(year, month, day, *hours)
            if with_clock is not None:
                label = name[match.start() : clock.end()]
                return LogName(label=label, at=with_clock)
        return LogName(label=match.group(), at=date)
    return None


def _day(name: str) -> LogName | None:
    for match in _DAY.finditer(name):
        at = _moment(_LEAP, int(match[1]), int(match[3]), int(match[4] or 0))
        if at is not None:
            return LogName(label=match.group(), at=at)
        at = _moment(_LEAP, int(match[1]), int(match[3]))
        if at is not None:
            return LogName(label=name[match.start() : match.end(3)], at=at)
    return None


def _commit(name: str) -> LogName | None:
    found = min(_COMMIT.findall(name), key=str.isdecimal, default="")
    return LogName(label=found[:10], commit=found) if found else None


def _moment(year: int, month: int, day: int, hour: int = 0, minute: int = 0, second: int = 0) -> datetime | None:
    """A moment in UTC; 24 o'clock, which `seq 0 24` makes, is the next day's beginning."""
    later = timedelta(days=1) if (hour, minute, second) == (24, 0, 0) else timedelta()
    try:
        return datetime(year, month, day, 0 if later else hour, minute, second, tzinfo=UTC) + later
    except (ValueError, OverflowError):
        return None


def _with_years(found: Mapping[str, LogName]) -> dict[str, LogName]:
    """Months and days in the order in which they were: nights from November to February are of two years."""
    moments = {path: name.at for path, name in found.items() if name.at is not None}
    day_of = {path: at.timetuple().tm_yday for path, at in moments.items()}
    days = sorted(set(day_of.values()))
    # The nights begin behind the longest pause, if that is not at the year's end.
    longest, start = max(((after - before, after) for before, after in pairwise(days)), default=(0, days[0]))
    if longest <= max(days[0] + 366 - days[-1], 60):
        start = days[0]
    # The year of the leap day is a leap year.
    base = _BEFORE_LEAP if 60 in days and start > 60 else _LEAP
    years = {path: base + (day < start) for path, day in day_of.items()}
    return {path: LogName(label=found[path].label, at=at.replace(year=years[path])) for path, at in moments.items()}


def commit_order(commits: tuple[str, ...], start: Path) -> dict[str, tuple[int, datetime]]:
    """Commit → its place, oldest first, and its time in the history of the repository around `start`; nothing outside of one."""
    try:
        root = find_root(start) if shutil.which("git") else None
    except CannotVerify:  # a repository of somebody else, which git will not read
        root = None
    known = {commit: full for commit in commits if root and (full := resolve(root, commit)) is not None}
    if root is None or not known:
        return {}
    wanted = "\n".join(sorted(set(known.values()))).encode()
    out = run_git(root, "rev-list", "--topo-order", "--reverse", "--timestamp", "--stdin", data=wanted)
    lines = enumerate(line.split() for line in out.decode().splitlines())
    places = {full: (n, datetime.fromtimestamp(int(stamp), UTC)) for n, (stamp, full) in lines}
    return {commit: places[full] for commit, full in known.items() if full in places}


def find_logs(words: Sequence[str], root: Path) -> tuple[str, ...]:
    """The files that the words mean, as paths seen from `root`; each once."""
    found: dict[str, None] = {}
    for word in words:
        matches = sorted(_meant(word, root))
        if not matches:
            said = f"expected --logs to be a glob, a folder or a file, found nothing that {word!r} means"
            raise UsageError(said, next_command=Command("ls", "-ld", word.partition("*")[0].rpartition("/")[0] or "."))
        found.update(dict.fromkeys(matches))
    return tuple(found)


def _meant(word: str, root: Path) -> Iterator[str]:
    path, pattern = root / word, PurePath(word)
    if path.is_file():
        yield word
    elif path.is_dir():
        named = (file.name for file in path.iterdir() if file.is_file() and not file.name.startswith("."))
        yield from (str(pattern / name) for name in named)
    else:
        base = Path(pattern.anchor) if pattern.anchor else root
        try:
            found = [file for file in base.glob(str(pattern.relative_to(pattern.anchor))) if file.is_file()]
        except ValueError as error:
            raise wrong_usage(f"expected --logs to be a glob, a folder or a file, found {word!r}: {error}") from error
        yield from (str(file if pattern.anchor else file.relative_to(root)) for file in found)
