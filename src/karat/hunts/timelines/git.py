"""The part that both git timelines share: points are sets of commits, and can be mixed."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence

import msgspec

from karat.engines.job import Command
from karat.findings import CannotVerify, Finding, UsageError
from karat.hunts import settings, settings as durations
from karat.hunts.model import Point, Suspect, Window
from karat.hunts.settings import EDIT, IMAGE, HuntSettings, Stage
from karat.hunts.timelines.container_engine import remove_named
from karat.hunts.timelines.git_mirror import (
    Commit,
    Mirror,
    branch_of_merge,
    from_timestamp,
    index_at,
    instants,
    interleave,
    line_between,
    suspects_between,
)
from karat.hunts.timelines.git_repositories import (
    SHORT,
    Repositories,
    history_findings,
    open_repositories,
    point_id,
)
from karat.hunts.timelines.timeline import Workspace


class GitTimeline:
    """Points that are sets of commits, one of each repository."""

    def __init__(
        self,
        name: str,
        repositories: Repositories,
        points: Sequence[Point],
        findings: Sequence[Finding],
        *,
        absent: str = "",
    ) -> None:
        self._name, self._repositories = name, repositories
        self.absent = absent
        """What it means if a coarser stage's change does not show here; empty: nothing that is known beforehand."""
        self._points, self._findings = tuple(points), (*repositories.findings(), *findings)

    @property
    def name(self) -> str:
        """`checkouts` or `commits`."""
        return self._name

    @property
    def points(self) -> Sequence[Point]:
        """Oldest first."""
        return self._points

    @property
    def findings(self) -> Sequence[Finding]:
        """What is odd about the history."""
        return self._findings

    def identity(self, point: Point) -> Mapping[str, str]:
        """Commits, and the container they are built in."""
        commits = self._repositories.commits(point)
        image = {"image": point.parts[IMAGE]} if IMAGE in point.parts else {}
        return {**{f"commit.{name}": commit for name, commit in commits.items()}, **image}

    def prepare(self, point: Point) -> Sequence[Command]:
        """Check out, build."""
        return self._repositories.prepare(point)

    def command(self, point: Point, command: Command) -> Command:
        """In the repository (of several: in the folder that holds them), or there within the container."""
        return self._repositories.command(point, command)

    def ahead(self, points: Sequence[Point]) -> None:
        """Nothing to fetch: the mirrors have every commit."""

    def mixed(self, old: Point, new: Point, taken: frozenset[str]) -> Point | None:
        """The old point with those repositories of the new one."""
        before, after = self._repositories.commits(old), self._repositories.commits(new)
        if before.keys() != after.keys() or not taken <= before.keys():
            return None
        commits = {name: after[name] if name in taken else before[name] for name in before}
        for point in (old, new):
            if commits == self._repositories.commits(point):
                return point
        moved = [name for name in commits if before[name] != after[name]]
        newer = " ".join(name for name in moved if name in taken)
        older = " ".join(name for name in moved if name not in taken)
        return Point(
            id=point_id(commits),
            label=f"new {newer}, old {older}",
            when=new.when,
            parts={**self._repositories.fixed, **commits},
        )

    def suspects(self, old: Point, new: Point) -> Sequence[Suspect]:
        """Every commit between two points, those that cannot be built as well."""
        return suspects_between(self._repositories.mirrors, old, new)

    def finer(self, old: Point, new: Point) -> bool:
        """Whether `commits`, opened between these two, has something to look into: several commits, or a merge."""
        before, after = self._repositories.commits(old), self._repositories.commits(new)
        moved = [name for name in before if before[name] != after.get(name)]
        if self._name == "checkouts" or len(moved) > 1:
            return bool(moved)
        if not moved or not self._repositories.settings.follow_merges:
            return False
        name = moved[0]
        return (
            branch_of_merge(self._repositories.mirrors[name], before[name], after[name]) is not None
        )

    def close(self) -> None:
        """Removes kept containers, those of this machine."""
        if kept := self._repositories.container:
            remove_named(kept.engine, kept.hunt, kept.full_name)


# DOC-HERE ends: Ends: which commit each repository has where a timeline begins and where it ends.
#
# Known exactly where the coarser stage recorded commits (`commit.NAME` of its identity, or its points' parts); else by time,
# from the branch.

_ID = re.compile(r"[0-9a-f]{7,64}")
_HOUR = 3600.0
_EARLIEST, _LATEST = 14 * _HOUR, 12 * _HOUR
"""A day begins so long before UTC's, and ends so long after it, where clocks are furthest ahead and behind."""


class CommitRange(msgspec.Struct, frozen=True, kw_only=True):
    """A repository whose two commits are known."""

    old: str
    new: str


class TimeRange(msgspec.Struct, frozen=True, kw_only=True):
    """Seconds since 1970 between which the others are looked at."""

    start: float
    end: float


class Ends(msgspec.Struct, frozen=True, kw_only=True):
    """What a coarser stage recorded."""

    exact: dict[str, CommitRange]
    notes: tuple[str, ...] = ()


def recorded_ranges(repositories: Repositories, window: Window) -> Ends:
    """Repositories whose commits a coarser stage recorded, at both of its points."""
    found: dict[str, CommitRange] = {}
    notes = []
    for name, mirror in repositories.mirrors.items():
        old = _recorded(window.old, window.old_identity, name)
        new = _recorded(window.new, window.new_identity, name)
        try:
            if old and new:
                found[name] = CommitRange(old=_commit(mirror, old), new=_commit(mirror, new))
        except CannotVerify as error:
            notes.append(f"{error}; what the branch had at that time is taken instead")
    if len(found) == len(repositories.mirrors) and all(e.old == e.new for e in found.values()):
        notes.append(
            f"{' and '.join(found)} did not move between the two points: the change came with something else "
            "(the image, another package), or the commits that were recorded are not those that ran"
        )
    return Ends(exact=found, notes=tuple(notes))


def window_times(hunt: HuntSettings, repositories: Repositories, window: Window) -> TimeRange:
    """When to look, where a coarser stage tells times only.

    An image of a day was made some time in that day, and nobody knows in which zone: one step of its timeline is added
    at the end, and on both sides what a day somewhere on earth is before or after UTC's.
    """
    if window.old.when is None or window.new.when is None:
        raise UsageError(
            "expected the coarser stage to tell the commits of each repository "
            "(probe.identify that prints commit.NAME=…), or points that have a time, found neither",
            next_command=EDIT,
        )
    dated = IMAGE in window.new.parts and not set(repositories.mirrors) & set(window.new.parts)
    margin = settings.parse_duration(repositories.settings.margin)
    start, end = window.old.when.timestamp() - margin, window.new.when.timestamp() + margin
    if dated and hunt.containers:
        start, end = (
            start - _EARLIEST,
            end + settings.parse_duration(hunt.containers.step) + _LATEST,
        )
    return TimeRange(start=start, end=end)


def own_times(repositories: Repositories, latest: float) -> TimeRange | None:
    """What hunt.toml says itself, up to the branches' ends unless it says until when; None: it says nothing."""
    start, end = repositories.settings.start, repositories.settings.end
    if start is None:
        return None
    found = TimeRange(start=start.timestamp(), end=end.timestamp() if end else latest)
    if found.end <= found.start:
        raise UsageError(
            f"expected a start before the end, found {start.isoformat()} and "
            f"{end.isoformat() if end else 'branches that end before it'}",
            next_command=EDIT,
        )
    return found


def _recorded(point: Point, identity: Mapping[str, str], name: str) -> str:
    """The commit a point had; what was really under test is believed before what was meant to be."""
    texts = (identity.get(f"commit.{name}", ""), point.parts.get(name, ""))
    return next(filter(None, map(str.strip, texts)), "")


def _commit(mirror: Mirror, text: str) -> str:
    """A recorded id, also a short one. A name would be somebody else's by now: branches move."""
    if not _ID.fullmatch(text.lower()):
        raise CannotVerify(
            f"repository {mirror.name}: expected commit.{mirror.name} to be a commit id, found {text[:80]!r}",
            next_command=EDIT,
        )
    return mirror.commit(text.lower())


# DOC-HERE commits: Commits: one after the other, of one repository or of several, where one moves at a time.
#
# Along first parents, a merge is one step; what it brought is looked into when it is found: the same stage, opened between the
# merge and its first parent, lists the commits of the merged branch, each tested as it was on its branch.


class Walk(msgspec.Struct, frozen=True, kw_only=True):
    """Where every repository starts, and the commits each moves to."""

    start: Mapping[str, str]
    lines: Mapping[str, Sequence[Commit]]
    notes: tuple[str, ...] = ()
    absent: str = ""
    """What it means if a change does not show on it."""


def open_commits(
    settings: HuntSettings,
    stage: Stage,  # noqa: ARG001 - a factory's signature; commits have no step
    window: Window | None,
    place: Workspace,
) -> GitTimeline:
    """Every commit between two points of a coarser stage, or between two that hunt.toml names."""
    own = settings.commits or settings.checkouts
    repositories = open_repositories(settings, own, window, place)
    ends, notes = (
        _window_ends(settings, repositories, window) if window else (_own_ends(repositories), ())
    )
    walk = _merged_branch(repositories, ends) if window and own.follow_merges else None
    walk = walk or _walk(repositories, ends)
    points, odds = _points(repositories, walk), history_findings((*notes, *walk.notes))
    return GitTimeline("commits", repositories, points, odds, absent=walk.absent)


def _walk(repositories: Repositories, ends: Mapping[str, CommitRange]) -> Walk:
    every = repositories.settings.history == "all"
    lines = {
        name: line_between(repositories.mirrors[name], each.old, each.new, every=every)
        for name, each in ends.items()
    }
    return Walk(
        start={name: each.old for name, each in ends.items()},
        lines={name: line.commits for name, line in lines.items()},
        notes=tuple(note for line in lines.values() for note in line.notes),
    )


def _merged_branch(repositories: Repositories, ends: Mapping[str, CommitRange]) -> Walk | None:
    """What a merge brought, if the whole window is one merge."""
    moved = [name for name, each in ends.items() if each.old != each.new]
    if len(moved) != 1:
        return None
    name, each = moved[0], ends[moved[0]]
    branch = branch_of_merge(repositories.mirrors[name], each.old, each.new)
    if branch is None:
        return None
    base, line = branch
    note = f"{name}: {each.new[:SHORT]} is a merge; these are the commits of the branch it merged, each as it was there"
    absent = (
        f"then it came with the merge {each.new[:SHORT]} itself: how conflicts were resolved, or the branch together with "
        "what was there before it"
    )
    return Walk(
        start={**{other: ends[other].old for other in ends}, name: base},
        lines={name: line.commits},
        notes=(note, *line.notes),
        absent=absent,
    )


def _points(repositories: Repositories, walk: Walk) -> list[Point]:
    commits = {name: walk.start[name] for name in repositories.mirrors}
    moves = interleave(walk.lines)
    found = [_first(repositories, commits, moves[0][1].time if moves else None)]
    for name, commit in moves:
        commits = {**commits, name: commit.id}
        found.append(
            Point(
                id=point_id(commits),
                label=_label(repositories, {name: commit.id}),
                when=from_timestamp(commit.time),
                parts={**repositories.fixed, **commits},
            )
        )
    return found


def _label(repositories: Repositories, moved: Mapping[str, str]) -> str:
    """What moved, for a person; of one repository alone, its name goes without saying."""
    shown = point_id(moved)
    return shown.rpartition("@")[2] if len(repositories.mirrors) == 1 else shown


def _first(repositories: Repositories, commits: Mapping[str, str], next_time: int | None) -> Point:
    """Where all repositories start: as old as the newest of their commits, and no newer than what comes next."""
    times = [
        repositories.mirrors[name].listed("--no-walk", commit)[0][0].time
        for name, commit in commits.items()
    ]
    latest = max(times) if next_time is None else min(max(times), next_time)
    return Point(
        id=point_id(commits),
        label=_label(repositories, commits),
        when=from_timestamp(latest),
        parts={**repositories.fixed, **commits},
    )


def _window_ends(
    settings: HuntSettings, repositories: Repositories, window: Window
) -> tuple[dict[str, CommitRange], tuple[str, ...]]:
    ends = recorded_ranges(repositories, window)
    exact = dict(ends.exact)
    if len(exact) < len(repositories.mirrors):
        times = window_times(settings, repositories, window)
        for name in repositories.mirrors:
            if name not in exact:
                exact[name] = _by_time(repositories, name, times.start, times.end)
    return {name: exact[name] for name in repositories.mirrors}, ends.notes


def _own_ends(repositories: Repositories) -> dict[str, CommitRange]:
    """What [commits] says: good and bad revisions, or start and end."""
    own = repositories.settings
    _refuse_unknown(repositories, (*own.good, *own.bad))
    times = own_times(repositories, float("inf"))
    if not own.good and times is None:
        raise UsageError(
            "commits: expected good = { NAME = 'REVISION' } (or start) in [commits], or a coarser stage, found neither",
            next_command=EDIT,
        )
    found = {}
    for name, mirror in repositories.mirrors.items():
        new = mirror.commit(own.bad[name]) if name in own.bad else repositories.tips[name]
        timed = _by_time(repositories, name, times.start, times.end) if times else None
        if timed and name not in own.bad:
            new = timed.new
        # A repository of which nothing is said stays where it ends.
        old = timed.old if timed else new
        found[name] = CommitRange(
            old=mirror.commit(own.good[name]) if name in own.good else old, new=new
        )
    return found


def _by_time(repositories: Repositories, name: str, start: float, end: float) -> CommitRange:
    commits, _ = repositories.mirrors[name].line(repositories.tips[name])
    first, last = index_at(commits, start), index_at(commits, end)
    if last < 0:
        raise UsageError(
            f"repository {name}: expected commits before {from_timestamp(end).isoformat()}, "
            f"found the first at {from_timestamp(commits[0].time).isoformat()}",
            next_command=EDIT,
        )
    return CommitRange(old=commits[max(first, 0)].id, new=commits[last].id)


def _refuse_unknown(repositories: Repositories, names: Sequence[str]) -> None:
    unknown = [name for name in names if name not in repositories.mirrors]
    if unknown:
        raise UsageError(
            f"commits: expected names of [[repositories]] ({', '.join(repositories.mirrors)}) in good and bad, "
            f"found {', '.join(unknown)}",
            next_command=EDIT,
        )


# DOC-HERE checkouts: Checkouts: several repositories kept in step by time.
#
# At each instant, every repository is at the last commit that was part of its branch by then, along first parents; which
# dates are believed is told in `hunts.timelines.git_mirror`. Instants at which no repository moved are one point with the one before.


def open_checkouts(
    settings: HuntSettings, stage: Stage, window: Window | None, place: Workspace
) -> GitTimeline:
    """The instants between two moments, or between two points of a coarser stage."""
    repositories = open_repositories(settings, settings.checkouts, window, place)
    step = (
        stage.step if stage.step is not None else durations.parse_duration(settings.checkouts.step)
    )
    if step <= 0:
        raise UsageError("checkouts: expected a step above zero, found 0", next_command=EDIT)
    lines, notes = _lines(repositories, window)
    whole = _times(settings, repositories, window, lines)
    moments = _instants(whole, step, aligned=window is not None)
    return GitTimeline(
        "checkouts",
        repositories,
        _points_checkouts(repositories, lines, moments),
        history_findings(notes),
    )


Lines = dict[str, tuple[Sequence[Commit], bool]]
"""Repository → its commits, oldest first, and whether the first and the last are exactly the ends."""


def _lines(repositories: Repositories, window: Window | None) -> tuple[Lines, list[str]]:
    ends_known = recorded_ranges(repositories, window) if window else Ends(exact={})
    exact, notes = ends_known.exact, list(ends_known.notes)
    found: Lines = {}
    for name, mirror in repositories.mirrors.items():
        if name in exact:
            ends = exact[name]
            line = line_between(mirror, ends.old, ends.new)
            first = mirror.listed("--no-walk", ends.old)[0][0]
            # The line's dates are in order among themselves; its first commit must not come after them.
            start = min([first.time, *(commit.time for commit in line.commits[:1])])
            found[name] = ([Commit(first.id, start), *line.commits], True)
            notes.extend(line.notes)
        else:
            commits, disbelieved = mirror.line(repositories.tips[name])
            found[name] = (commits, False)
            if disbelieved:
                notes.append(_said_of_dates(name, disbelieved, len(commits)))
    return found, notes


def _said_of_dates(name: str, disbelieved: int, count: int) -> str:
    return (
        f"{name}: {disbelieved:,} of {count:,} commits are dated out of the branch's order; "
        "each is taken to have come with the commit before it"
    )


def _times(
    settings: HuntSettings, repositories: Repositories, window: Window | None, lines: Lines
) -> TimeRange:
    known = [commits for commits, exact in lines.values() if exact]
    spans = [TimeRange(start=line[0].time, end=line[-1].time) for line in known]
    if window is not None and len(known) < len(lines):
        spans.append(window_times(settings, repositories, window))
    if window is None:
        latest = max((line[-1].time for line, _ in lines.values() if line), default=0)
        own = own_times(repositories, latest)
        if own is None:
            raise UsageError(
                "checkouts: expected start (and end) in [checkouts], or a coarser stage before it, found neither",
                next_command=EDIT,
            )
        spans.append(own)
    return TimeRange(start=min(s.start for s in spans), end=max(s.end for s in spans))


def _instants(whole: TimeRange, step: float, *, aligned: bool) -> list[float]:
    """By step from the start; within a coarser stage's window on round times, between its two ends."""
    if not aligned:
        return instants(whole.start, whole.end, step)
    first = math.floor(whole.start / step) * step + step
    between = instants(first, whole.end, step) if first < whole.end else [whole.end]
    # Commits of one second are a window as well: its two ends are then at the same time.
    return [whole.start, *between]


def _points_checkouts(
    repositories: Repositories, lines: Lines, moments: Sequence[float]
) -> list[Point]:
    found: list[Point] = []
    before: dict[str, str] | None = None
    for number, time in enumerate(moments):
        commits = _commits(lines, time, first=number == 0, last=number == len(moments) - 1)
        if commits == before:
            continue
        before = commits
        lacking = [name for name in lines if name not in commits]
        label = _label_checkouts(time)
        found.append(
            Point(
                id=label if lacking else point_id(commits),
                label=label,
                when=from_timestamp(time),
                parts={**repositories.fixed, **commits},
                missing=f"{' and '.join(lacking)} had no commit yet" if lacking else "",
            )
        )
    return found


def _commits(lines: Lines, time: float, *, first: bool, last: bool) -> dict[str, str]:
    found = {}
    for name, (commits, exact) in lines.items():
        index = index_at(commits, time)
        if exact:
            index = 0 if first else len(commits) - 1 if last else max(index, 0)
        if index >= 0:
            found[name] = commits[index].id
    return found


def _label_checkouts(time: float) -> str:
    when = from_timestamp(time)
    return f"{when:%Y-%m-%d %H:%M}" if time % 60 == 0 else f"{when:%Y-%m-%d %H:%M:%S}"
