"""Log files: which ones a glob, a folder or a name means, what their names say (a date, a commit), and their content.

Links to folders are not followed, so that none is a loop.
"""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from io import BytesIO
from itertools import pairwise
from pathlib import Path, PurePosixPath
from typing import BinaryIO, Literal

import msgspec

from karat.changepoints.readers.sheets import parse_date, utc
from karat.changepoints.series import wrong_usage
from karat.findings import CannotVerify, UsageError
from karat.goldens.paths import glob_matcher
from karat.system.command import Command
from karat.system.foreign.limits import LOG
from karat.system.git import find_root, resolve, run_git

Kind = Literal["date", "day", "commit", "name"]

_DATE = re.compile(r"(?<!\d)(\d{4})([-_.]?)(\d{2})\2(\d{2})(?!\d{3})")
_CLOCK = re.compile(r"[-_.T ]?(\d{2})(?:[-_.:h]?(\d{2})(?:[-_.:m]?(\d{2}))?)?(?:\.\d+)?Z?(?!\d)")
_DAY = re.compile(r"(?<![\d.])(\d{2})([-_])(\d{2})(?:[-_](\d{2}))?(?!\d)")
_COMMIT = re.compile(r"(?<![0-9A-Za-z])(?=[a-f]*[0-9])(?=[0-9]*[a-f])[0-9a-f]{7,64}(?![0-9A-Za-z])")
_ENOUGH = 0.8  # of the names must have what the others are ordered by; the rest are left out, and named
_LEAP, _BEFORE_LEAP = 2000, 1999
_ASKED = 2000  # commits that fit a command line; more of them are looked for in all branches
_WILD = frozenset("*?{")
_ENDINGS = frozenset({".log", ".txt", ".out", ".err"})
_PACKED = b"\x1f\x8b"


class LogName(msgspec.Struct, frozen=True, kw_only=True):
    """What a name says."""

    label: str
    at: datetime | None = None
    dated: bool = False  # Whether the year is known.
    commit: str = ""


class LogNames(msgspec.Struct, frozen=True, kw_only=True):
    """What the names of all logs say: one kind for all."""

    kind: Kind
    found: Mapping[str, LogName]  # Those that say it; others are left out.


def read_names(paths: Sequence[str], *, year: int | None = None) -> LogNames:
    """What most of the paths say: a date, else month and day, else a commit, else only their order."""
    for kind, read in (("date", _dated), ("day", _day), ("commit", _commit)):
        # What the file's name says; else what the folders say, the nearest first.
        parts = {path: map(read, reversed(path.split("/"))) for path in paths}
        found = {path: name for path in paths if (name := next(filter(None, parts[path]), None))}
        if kind == "commit":
            found |= _commits_of_digits(paths, found)
        if found and len(found) >= _ENOUGH * len(paths):
            named = _with_years(found, year) if kind == "day" else found
            return LogNames(kind=kind, found=named)  # type: ignore[arg-type]
    names = {path: PurePosixPath(path) for path in paths}
    stems = {path: name.stem if name.suffix in _ENDINGS else name.name for path, name in names.items()}
    return LogNames(kind="name", found={path: LogName(label=stem) for path, stem in stems.items()})


def read_pattern(paths: Sequence[str], pattern: str, *, year: int | None = None) -> LogNames:
    """The same by an expression of the user's, with named groups."""
    known = {"date", "year", "month", "day", "hour", "minute", "commit", "label"}
    try:
        expression = re.compile(pattern)
    except re.error as error:
        raise wrong_usage(f"expected --name-pattern to be a regular expression, found {pattern!r}: {error}") from error
    groups = set(expression.groupindex)
    if not groups or groups - known:
        said = f"expected --name-pattern to have named groups out of {', '.join(sorted(known))}, as (?P<date>…)"
        raise wrong_usage(f"{said}, found {', '.join(expression.groupindex) or 'none'}")
    found = {path: match for path in paths if (match := expression.search(path))}
    parts = {path: match.groupdict() for path, match in found.items()}
    if "commit" in groups:
        commits = {path: named["commit"] or "" for path, named in parts.items()}
        names = {p: LogName(label=parts[p].get("label") or c, commit=c) for p, c in commits.items()}
        return LogNames(kind="commit", found=names)
    if groups & {"date", "day"}:
        dated = {p: n for p, g in parts.items() if (n := _by_groups(g, found[p].group(), year)) is not None}
        if all(name.dated for name in dated.values()):
            return LogNames(kind="date", found=dated)
        return LogNames(kind="day", found=_with_years(dated, year))
    names = {p: LogName(label=g.get("label") or found[p].group()) for p, g in parts.items()}
    return LogNames(kind="name", found=names)


def natural_key(text: str) -> list[tuple[int, int, str]]:
    """A key that puts run-9 before run-10."""
    parts = re.split(r"(\d+)", text)
    return [
        (0, int(part[:4000]), "") if part.isdecimal() and part.isascii() else (1, 0, part) for part in parts if part
    ]


def _by_groups(groups: Mapping[str, str | None], whole: str, year: int | None) -> LogName | None:
    label = groups.get("label") or whole
    if groups.get("date"):
        when = parse_date(groups["date"])
        return None if when is None else LogName(label=label, at=utc(when), dated=True)
    numbers = {key: int(value) for key, value in groups.items() if value and value.isdecimal()}
    known = numbers.get("year", year)
    parts = {"month": 1, "day": 1, "hour": 0, "minute": 0}
    at = _moment(known or _LEAP, *(numbers.get(name, default) for name, default in parts.items()))
    return None if at is None else LogName(label=label, at=at, dated=known is not None)


def _dated(name: str) -> LogName | None:
    for match in _DATE.finditer(name):
        year, month, day = int(match[1]), int(match[3]), int(match[4])
        date = _moment(year, month, day) if 1970 <= year <= 2100 else None
        if date is None:
            continue
        clock = _CLOCK.match(name, match.end())
        if clock:
            hours = [int(part) for part in clock.groups("0")]
            with_clock = _moment(year, month, day, *hours)
            if with_clock is not None:
                label = name[match.start() : clock.end()]
                return LogName(label=label, at=with_clock, dated=True)
        return LogName(label=match.group(), at=date, dated=True)
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
    match = _COMMIT.search(name)
    return LogName(label=match.group()[:10], commit=match.group()) if match else None


def _commits_of_digits(paths: Sequence[str], found: Mapping[str, LogName]) -> dict[str, LogName]:
    """One short hash in 280 has no letter; it is told from a number by being where, and as long as, the others are."""
    shapes = {path.replace(name.commit, "#" * len(name.commit)) for path, name in found.items()}
    made = {}
    for path in paths:
        match = None if path in found else re.search(r"(?<![0-9A-Za-z])[0-9]{7,64}(?![0-9A-Za-z])", path)
        if match and path.replace(match.group(), "#" * len(match.group())) in shapes:
            made[path] = LogName(label=match.group()[:10], commit=match.group())
    return made


def _moment(year: int, month: int, day: int, hour: int = 0, minute: int = 0, second: int = 0) -> datetime | None:
    """A moment in UTC; 24 o'clock, which `seq 0 24` makes, is the next day's beginning."""
    later = timedelta(days=1) if (hour, minute, second) == (24, 0, 0) else timedelta()
    try:
        return datetime(year, month, day, 0 if later else hour, minute, second, tzinfo=UTC) + later
    except (ValueError, OverflowError):
        return None


def _with_years(found: Mapping[str, LogName], year: int | None) -> dict[str, LogName]:
    """Months and days in the order in which they were: nights from November to February are of two years."""
    days = sorted({name.at.timetuple().tm_yday for name in found.values() if name.at is not None}) or [0]
    # The nights begin behind the longest pause, if that is not at the year's end.
    longest, start = max(((after - before, after) for before, after in pairwise(days)), default=(0, days[0]))
    if longest <= max(days[0] + 366 - days[-1], 60):
        start = days[0]
    leap_day_late = 60 in days and start > 60
    base = year if year is not None else (_BEFORE_LEAP if leap_day_late else _LEAP)
    made = {}
    for path, name in found.items():
        if name.at is None:
            continue
        then = base + 1 if name.at.timetuple().tm_yday < start else base
        try:
            at = name.at.replace(year=then)
        except ValueError as error:
            said = f"expected the names of logs to be days of {then}, found {path}"
            raise wrong_usage(f"{said}: there is no {name.at:%m-%d} in that year") from error
        made[path] = LogName(label=name.label, at=at, dated=year is not None)
    return made


def commit_order(commits: tuple[str, ...], start: Path) -> dict[str, tuple[int, datetime]]:
    """Commit → its place, oldest first, and its time in the history of the repository around `start`; nothing outside of one."""
    try:
        root = find_root(start) if shutil.which("git") else None
    except CannotVerify:  # a repository of somebody else, which git will not read
        root = None
    known = {commit: full for commit in commits if root and (full := resolve(root, commit)) is not None}
    if root is None or not known:
        return {}
    wanted = sorted(set(known.values())) if len(known) <= _ASKED else ["--all"]
    out = run_git(root, "rev-list", "--topo-order", "--reverse", "--timestamp", *wanted, "--")
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
            raise UsageError(said, next_command=Command("ls", "-ld", _base(word) or "."))
        found.update(dict.fromkeys(matches))
    return tuple(found)


def _meant(word: str, root: Path) -> Iterator[str]:
    path = root / word
    if path.is_dir():
        for name in os.listdir(path):  # noqa: PTH208 - names, also of those that are no UTF-8
            if (path / name).is_file() and not name.startswith("."):
                yield f"{word.rstrip('/')}/{name}" if word not in {"", "."} else name
    elif path.is_file():
        yield word
    elif _WILD & set(word):
        start = f"{base}/" if (base := _base(word)) else ("/" if word.startswith("/") else "")
        pattern = glob_matcher(word)
        depth = None if "**" in word else word.count("/")
        for folder, folders, names in os.walk(root / (start or ".")):
            below = Path(folder).relative_to(root / (start or ".")).as_posix()
            here = start if below == "." else f"{start}{below}/"
            if depth is not None and here.count("/") >= depth:
                folders.clear()
            found = (f"{here}{name}" for name in names)
            yield from (one for one in found if pattern.fullmatch(one) and (root / one).is_file())


def _base(word: str) -> str:
    """The folders before the first wild card."""
    parts = word.split("/")[:-1]
    wild = next((n for n, part in enumerate(parts) if _WILD & set(part)), len(parts))
    return "/".join(parts[:wild])


def open_log(path: Path) -> BinaryIO:
    """The bytes of a log, decompressed if need be."""
    with path.open("rb") as stream:
        packed = stream.read(2) == _PACKED
    if not packed:
        return path.open("rb")
    import gzip

    whole = BytesIO()
    with gzip.open(path) as unpacked:
        while piece := unpacked.read(1 << 20):  # asked for all of it, Python makes room for all of it
            if whole.tell() + len(piece) > LOG.value():
                raise OSError(f"it unpacks to more than {LOG.value() >> 20} MiB; {LOG.setting}")
            whole.write(piece)
    whole.seek(0)
    return whole


def tail_of(path: Path, room: int) -> bytes:
    """The end of a log, which is where a program says what it died of."""
    with open_log(path) as stream:
        head = stream.read(2)
        size = stream.seek(0, os.SEEK_END)
        stream.seek(max(size - room, 0))
        data = stream.read(room)
    utf16 = head in {b"\xff\xfe", b"\xfe\xff"} and size > room
    return head + data if utf16 else data
