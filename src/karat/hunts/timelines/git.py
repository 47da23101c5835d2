"""The two timelines of git history: checkouts by time, and commits one by one.

Checkouts: at each instant, every repository is at the last commit that was part of its branch by then, along first parents;
instants at which none moved are one point with the one before. Commits: one repository moves at a time. Along first parents a
merge is one step; what it brought is looked into when it is found: the same stage, opened between the merge and its first
parent, lists the commits of the merged branch, each tested as it was there.

The two ends are known exactly where the coarser stage recorded commits (`commit.NAME` of its identity, or its points' parts);
else they come from the branch, by time.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import msgspec

from karat.engines.job import JobCommand
from karat.findings import CannotVerify
from karat.hunts.model import Point, Suspect, Window
from karat.hunts.settings import COMMIT, EDIT, IMAGE, REBUILD, HuntSettings, Stage, mistake, parse_duration
from karat.hunts.timelines.git_mirror import Commit, Mirror, from_timestamp, index_at, instants, interleave
from karat.hunts.timelines.git_repositories import SHORT, Repositories, open_repositories, point_id
from karat.hunts.timelines.timeline import Timeline, Workspace

_EARLIEST, _LATEST = 14 * 3600.0, 12 * 3600.0
"""A day begins so long before UTC's, and ends so long after it, where clocks are furthest ahead and behind."""


class CommitRange(NamedTuple):
    """A repository whose two commits are known."""

    old: str
    new: str


TimeRange = tuple[float, float]  # Seconds since 1970 between which the others are looked at.


class GitTimeline(Timeline):
    """Points that are sets of commits, one of each repository, and can be mixed."""

    def __init__(
        self, name: str, repositories: Repositories, points: Sequence[Point], notes: Sequence[str], *, absent: str = ""
    ) -> None:
        self.name, self.points, self._repositories = name, tuple(points), repositories
        self.absent = absent
        self.notes = (*repositories.notes(), *notes)

    def identity(self, point: Point) -> Mapping[str, str]:
        commits = self._repositories.commits(point)
        more = {name: point.parts[name] for name in (IMAGE, REBUILD) if name in point.parts}
        return {**{f"commit.{name}": commit for name, commit in commits.items()}, **more}

    def prepare(self, point: Point) -> Sequence[JobCommand]:
        return self._repositories.prepare(point)

    def command(self, point: Point, command: JobCommand) -> JobCommand:
        """In the repository (of several: in the folder that holds them), or there within the container."""
        return self._repositories.command(point, command)

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
        mix = self._repositories.point(commits, f"new {newer}, old {older}", 0)
        return msgspec.structs.replace(mix, when=new.when)

    def suspects(self, old: Point, new: Point) -> Sequence[Suspect]:
        """Every commit between two points, those that cannot be built as well."""
        before, after = self._repositories.commits(old), self._repositories.commits(new)
        moved = [name for name in before if name in after and before[name] != after[name]]
        mirrors = self._repositories.mirrors
        return [suspect for name in moved for suspect in mirrors[name].suspects(before[name], after[name])]

    def finer(self, old: Point, new: Point) -> bool:
        """A merge has a branch, which can be looked into."""
        before, after = self._repositories.commits(old), self._repositories.commits(new)
        moved = [name for name in before if before[name] != after.get(name)]
        if self.name == "checkouts" or len(moved) != 1:
            return False
        name = moved[0]
        return bool(self._repositories.mirrors[name].merged_branches(before[name], after[name]))

    def close(self) -> None:
        if kept := self._repositories.container:
            kept.remove()


def open_commits(settings: HuntSettings, _stage: Stage, window: Window | None, place: Workspace) -> GitTimeline:
    """Every commit between two points of a coarser stage, or between two that hunt.toml names."""
    own = settings.commits or settings.checkouts
    repositories = open_repositories(settings, own, window, place)
    mirrors = repositories.mirrors
    notes: list[str] = []
    if window is None:
        ends = _own_ends(repositories)
    else:
        ends, notes = _recorded_ranges(repositories, window)
        if len(ends) < len(mirrors):
            times = _window_times(settings, repositories, window)
            for name in mirrors.keys() - ends.keys():
                ends[name] = _range_by_time(repositories, name, times)
    start = {name: ends[name].old for name in mirrors}
    moved = [name for name in mirrors if ends[name].old != ends[name].new]
    branches = []
    if window is not None and len(moved) == 1:
        branches = mirrors[moved[0]].merged_branches(*ends[moved[0]])
    if not branches:
        every = own.history == "all"
        lines = {}
        for name, mirror in mirrors.items():
            lines[name], odd = mirror.line(*ends[name], every=every)
            notes += odd
        return GitTimeline("commits", repositories, _commit_points(repositories, start, lines), notes)
    name, merge = moved[0], ends[moved[0]].new[:SHORT]
    which = "the branch" if len(branches) == 1 else f"the {len(branches)} branches, one after the other, that"
    notes.append(f"{name}: {merge} is a merge; these are the commits of {which} it merged, each as it was there")
    why = "how conflicts were resolved, or how the branch and the code before it work together"
    absent = f"so it came with the merge {merge} itself: {why}"
    points: list[Point] = []
    breaks = []
    for number, (base, commits) in enumerate(branches):
        first, *others = _commit_points(repositories, {**start, name: base}, {name: commits})
        breaks.append(len(points))
        # Several may leave from the same commit.
        numbered = {"id": f"{first.id} #{number + 1}", "label": f"{first.label} #{number + 1}"} if number else {}
        points += [msgspec.structs.replace(first, **numbered), *others]
    timeline = GitTimeline("commits", repositories, points, notes, absent=absent)
    timeline.breaks = breaks[1:]
    return timeline


def _commit_points(
    repositories: Repositories, start: Mapping[str, str], lines: Mapping[str, Sequence[Commit]]
) -> list[Point]:
    def label(moved: Mapping[str, str]) -> str:
        """What moved; of one repository alone, its name goes without saying."""
        return point_id(moved).rpartition("@")[2] if len(start) == 1 else point_id(moved)

    moves = interleave(lines)
    # Where all start: as old as the newest of their commits, and no newer than what comes next.
    latest = max(repositories.mirrors[n].listed("--no-walk", c)[0].time for n, c in start.items())
    first = min(latest, moves[0][1].time) if moves else latest
    commits = dict(start)
    found = [repositories.point(commits, label(commits), first)]
    about = {n: repositories.mirrors[n].about([start[n], *(c.id for c in line)]) for n, line in lines.items()}
    nothing = ("", 1.0)
    if len(start) == 1:
        found = [msgspec.structs.replace(found[0], title=about[n].get(c, nothing)[0]) for n, c in start.items()]
    for name, commit in moves:
        commits = {**commits, name: commit.id}
        made = repositories.point(commits, label({name: commit.id}), commit.time)
        title, weight = about[name].get(commit.id, nothing)
        found.append(msgspec.structs.replace(made, title=title, weight=weight))
    return found


def _own_ends(repositories: Repositories) -> dict[str, CommitRange]:
    """What [commits] says: good and bad revisions, or start and end."""
    own, mirrors = repositories.settings, repositories.mirrors
    times = _own_times(repositories, float("inf"))
    if not own.good and times is None:
        wanted = "good = { NAME = 'REVISION' } (or start) in [commits], or a coarser stage"
        raise mistake(f"commits: expected {wanted}, found neither")
    found = {}
    for name, mirror in mirrors.items():
        timed = _range_by_time(repositories, name, times) if times else None
        new = mirror.commit(own.bad[name]) if name in own.bad else timed.new if timed else repositories.tips[name]
        # A repository of which nothing is said stays where it ends.
        old = mirror.commit(own.good[name]) if name in own.good else timed.old if timed else new
        found[name] = CommitRange(old, new)
    return found


def _range_by_time(repositories: Repositories, name: str, times: TimeRange) -> CommitRange:
    commits = repositories.mirrors[name].listed("--first-parent", repositories.tips[name])
    first, last = (index_at(commits, time) for time in times)
    if last < 0:
        end, start = (from_timestamp(time).isoformat() for time in (times[1], commits[0].time))
        raise mistake(f"repository {name}: expected commits before {end}, found the first at {start}")
    return CommitRange(commits[max(first, 0)].id, commits[last].id)


Lines = dict[str, tuple[Sequence[Commit], bool]]
"""Repository → its commits, oldest first, and whether the first and the last are exactly the ends."""


def open_checkouts(settings: HuntSettings, stage: Stage, window: Window | None, place: Workspace) -> GitTimeline:
    """The instants between two moments, or between two points of a coarser stage."""
    repositories = open_repositories(settings, settings.checkouts, window, place)
    step = stage.step if stage.step is not None else parse_duration(settings.checkouts.step)
    exact, notes = _recorded_ranges(repositories, window) if window else ({}, [])
    lines: Lines = {}
    for name, mirror in repositories.mirrors.items():
        if name in exact:
            line, odd = mirror.line(*exact[name])
            notes += odd
            old = mirror.listed("--no-walk", exact[name].old)[0]
            # The line's dates are in order among themselves; its first commit must not come after them.
            start = min([old.time, *(commit.time for commit in line[:1])])
            lines[name] = ([Commit(old.id, start), *line], True)
        else:
            lines[name] = (mirror.listed("--first-parent", repositories.tips[name]), False)
    if window is None:
        own = _own_times(repositories, max((line[-1].time for line, _ in lines.values() if line), default=0))
        if own is None:
            said = "checkouts: expected start (and end) in [checkouts], or a coarser stage before it, found neither"
            raise mistake(said)
        moments = instants(*own, step)
    else:
        spans: list[TimeRange] = [(line[0].time, line[-1].time) for line, exact in lines.values() if exact]
        if len(spans) < len(lines):
            spans.append(_window_times(settings, repositories, window))
        first, last = min(start for start, _ in spans), max(end for _, end in spans)
        # On round times, between the window's two ends; commits of one second are a window as well.
        round_time = math.floor(first / step) * step + step
        moments = [first, *(instants(round_time, last, step) if round_time < last else [last])]
    return GitTimeline("checkouts", repositories, _checkout_points(repositories, lines, moments), notes)


def _checkout_points(repositories: Repositories, lines: Lines, moments: Sequence[float]) -> list[Point]:
    found: list[Point] = []
    before: dict[str, str] | None = None
    last = len(moments) - 1
    for number, time in enumerate(moments):
        commits: dict[str, str] = {}
        for name, (listed, exact) in lines.items():
            index = index_at(listed, time)
            if exact:
                index = 0 if number == 0 else len(listed) - 1 if number == last else max(index, 0)
            if index >= 0:
                commits[name] = listed[index].id
        if commits == before:
            continue
        before = commits
        label = f"{from_timestamp(time):%Y-%m-%d %H:%M{'' if time % 60 == 0 else ':%S'}}"
        point = repositories.point(commits, label, time)
        if lacking := [name for name in lines if name not in commits]:
            missing = f"{' and '.join(lacking)} had no commit yet"
            point = msgspec.structs.replace(point, id=label, missing=missing)
        found.append(point)
    return found


def _recorded_ranges(repositories: Repositories, window: Window) -> tuple[dict[str, CommitRange], list[str]]:
    """Repositories whose commits a coarser stage recorded, at both of its points; and what is odd about them."""
    found: dict[str, CommitRange] = {}
    notes: list[str] = []
    for name, mirror in repositories.mirrors.items():
        # What was really under test is believed before what was meant to be.
        ends = ((window.old, window.old_identity), (window.new, window.new_identity))
        old, new = (known.get(f"commit.{name}", "").strip() or end.parts.get(name, "").strip() for end, known in ends)
        try:
            if old and new:
                found[name] = CommitRange(_commit(mirror, old), _commit(mirror, new))
        except CannotVerify as error:
            notes.append(f"{error}; the branch's commit at that time is used instead")
    if len(found) == len(repositories.mirrors) and all(e.old == e.new for e in found.values()):
        notes.append(
            f"{' and '.join(found)} did not move between the two points: the change came with something else "
            "(the image, another package), or the commits that were recorded are not those that ran"
        )
    return found, notes


def _commit(mirror: Mirror, text: str) -> str:
    """A recorded id, also a short one. A name would be somebody else's by now: branches move."""
    if not COMMIT.fullmatch(text.lower()):
        said = f"repository {mirror.name}: expected commit.{mirror.name} to be a commit id, found {text[:80]!r}"
        raise CannotVerify(said, next_command=EDIT)
    return mirror.commit(text.lower())


def _window_times(hunt: HuntSettings, repositories: Repositories, window: Window) -> TimeRange:
    """When to look, where a coarser stage tells times only.

    An image of a day was made some time in that day, and nobody knows in which zone: one step of its timeline is added
    at the end, and on both sides what a day somewhere on earth is before or after UTC's.
    """
    if window.old.when is None or window.new.when is None:
        commits = "the commits of each repository (probe.identify that prints commit.NAME=…)"
        raise mistake(f"expected the coarser stage to tell {commits}, or points that have a time, found neither")
    start, end = window.old.when.timestamp(), window.new.when.timestamp()
    dated = IMAGE in window.new.parts and not set(repositories.mirrors) & set(window.new.parts)
    if dated and hunt.containers:
        start, end = start - _EARLIEST, end + parse_duration(hunt.containers.step) + _LATEST
    return start, end


def _own_times(repositories: Repositories, latest: float) -> TimeRange | None:
    """What hunt.toml says itself, up to the branches' ends unless it says until when; None: it says nothing."""
    start, end = repositories.settings.start, repositories.settings.end
    if start is None:
        return None
    found = start.timestamp(), end.timestamp() if end else latest
    if found[1] <= found[0]:
        last = end.isoformat() if end else "branches that end before it"
        raise mistake(f"expected a start before the end, found {start.isoformat()} and {last}")
    return found
