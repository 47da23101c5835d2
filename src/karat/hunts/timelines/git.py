"""The two timelines of git history: checkouts by time, and commits one by one.

Checkouts: at each instant, every repository is at the last commit that was part of its branch by then, along first parents;
instants at which none moved are one point with the one before. Commits: one repository moves at a time. Along first parents a
merge is one step; what it brought is looked into when it is found: the same stage, opened between the merge and its first
parent, lists the commits of the merged branch, each tested as it was there. In a slot's work area the repositories are checked
out at a point's commits, and built, maybe in a kept container.

An area borrows its objects from the mirror, so that making one takes no time and no room; where the mirror is not (another
node), it fetches from the URL. Every git command names its repository: an area may lie within a work tree of the user's, and
git, left to search, would find that one. Every command may be killed at any moment, and run again.

The two ends are known exactly where the coarser stage recorded commits (`commit.NAME` of its identity, or its points' parts);
else they come from the branch, by time.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import msgspec

from karat.engines.job import JobCommand
from karat.findings import CannotVerify
from karat.hunts import settings as tables
from karat.hunts.model import Point, Suspect, Window
from karat.hunts.settings import IMAGE, REBUILD, CheckoutSettings, HuntSettings, Stage, mistake, parse_duration
from karat.hunts.timelines.container_engine import KeptContainer, absolute_mount, check_mountable, open_container_engine
from karat.hunts.timelines.git_mirror import Commit, Mirror, from_timestamp, index_at, instants, interleave
from karat.hunts.timelines.timeline import Timeline, Workspace
from karat.system import git
from karat.system.files import write_bytes
from karat.system.secrets import EVERYTHING

_EARLIEST, _LATEST = 14 * 3600.0, 12 * 3600.0
"""A day begins so long before UTC's, and ends so long after it, where clocks are furthest ahead and behind."""


_ALTERNATES = "karat-alternates"  # A file of the mirror: what an area is given to borrow from it.
_LOCAL = ("-c", "safe.directory=*")
_UNLOCK = ("-path", "*/objects", "-prune", "-o", "-type", "f", "-name", "*.lock", "-exec", "rm", "-f", "{}", "+")
_BYTECODE = ("-type", "d", "-name", "__pycache__", "-prune", "-exec", "rm", "-rf", "{}", "+")
_LAST_GOOD = "last good"
# The area belongs to another user than the container's root, as git sees it.
_TRUST = {"GIT_CONFIG_COUNT": "1", "GIT_CONFIG_KEY_0": "safe.directory", "GIT_CONFIG_VALUE_0": "*"}
SHORT = 12  # Digits of a commit in ids and labels.


class Checkout(msgspec.Struct, frozen=True, kw_only=True):
    """One repository in a work area."""

    mirror: Mirror
    clean: bool = False

    @property
    def folder(self) -> str:
        return f"@AREA@/{self.mirror.name}"

    def commands(self, commit: str) -> list[JobCommand]:
        """Everything that brings the repository to a commit, whatever state it is in."""
        git_folder, url = f"{self.folder}/.git", self.mirror.url
        made = {**git.ALONE, "GIT_DEFAULT_HASH": "sha1"}  # whatever the user has for new repositories
        # Before, since what a build left in a folder would be in the way of a submodule; after, for one that is none any more.
        clean = [self._git("clean", "clean", "-ffdxq")] if self.clean else []
        borrowed = str(self.mirror.path / _ALTERNATES)
        # From the URL, unless the commit is there: borrowed, or fetched before.
        flags = ("--quiet", "--no-tags", "--no-recurse-submodules", "--no-write-fetch-head", "--")
        kept = ("+refs/heads/*:refs/karat/heads/*", "+refs/tags/*:refs/karat/tags/*")
        there = (*self._words(_LOCAL), "cat-file", "-e", f"{commit}^{{commit}}")
        same = (*self._words(_LOCAL), "diff", "--quiet", commit, "HEAD", "--")
        fetch = self._remote("fetch", "fetch", *flags, url, *kept)
        submodules = []
        if self.mirror.settings.submodules:
            # Who clones from this disk has submodules there, too; git refuses them since it cannot know whose they are.
            from_disk = ("-c", "protocol.file.allow=always") if url.startswith("/") else ()
            update = ("submodule", "--quiet", "update", "--init", "--recursive", "--force")
            submodules = [
                # Relative URLs of submodules are seen from the repository's own.
                self._git("origin", "config", "remote.origin.url", url),
                self._git("sync", "submodule", "--quiet", "sync", "--recursive"),
                self._remote("submodules", *from_disk, *update),
            ]
        return [
            self._command("folder", "mkdir", "-p", git_folder, cwd="@AREA@"),
            # Whoever held a lock of this area was killed: the slot is ours alone.
            self._command("heal", "find", git_folder, *_UNLOCK),
            self._command("init", *self._words(_LOCAL), "init", "--quiet", "--template=", env=made),
            self._command("borrow", "cp", borrowed, f"{git_folder}/objects/info/alternates", may_fail=True),
            msgspec.structs.replace(fetch, unless=there),
            *clean,
            # Python takes a source of the same size and second for the one it compiled.
            self._command("bytecode", "find", self.folder, *_BYTECODE, unless=same),
            self._git("checkout", "checkout", "--quiet", "--force", "--detach", commit, "--"),
            *submodules,
            *clean,
        ]

    def _words(self, settings: tuple[str, ...]) -> tuple[str, ...]:
        return ("git", *settings, f"--git-dir={self.folder}/.git", f"--work-tree={self.folder}")

    def _git(self, name: str, *words: str) -> JobCommand:
        """A command that sees no configuration but the area's own."""
        return self._command(name, *self._words(_LOCAL), *words, env=git.ALONE)

    def _remote(self, name: str, *words: str) -> JobCommand:
        """A command that may talk to a server, with the user's configuration."""
        words = (*self._words(git.SETTINGS), *words)
        return self._command(name, *words, env=git.QUIET, passed=EVERYTHING, timeout=7200.0)

    def _command(self, name: str, *argv: str, **more: Any) -> JobCommand:
        known = {"cwd": self.folder, "timeout": 1800.0, **more}
        return JobCommand(role="prepare", name=f"{self.mirror.name}: {name}", argv=argv, **known)


def open_container(
    hunt: HuntSettings, settings: CheckoutSettings, window: Window | None, place: Workspace, mirrors: Sequence[Mirror]
) -> KeptContainer | None:
    """The container, as hunt.toml wants it; None: builds run on the host."""
    if not settings.container:
        return None
    theirs = hunt.containers or tables.ContainerSettings(image="")
    engine = open_container_engine(hunt, place)
    if engine.name == "pyxis":
        raise mistake('container: expected docker or podman to build in; set engine = "podman" under [containers]')
    # Another node has no mirror at that path; a mount of what is not there would stop the container.
    here = hunt.engine.kind == "local"
    borrowed = tuple(f"{check_mountable(m.path)}:{m.path}:ro" for m in mirrors) if here else ()
    own = (absolute_mount(mount, place.root) for mount in theirs.mounts)
    image = settings.container
    if image == _LAST_GOOD:
        image = window.old.parts.get(IMAGE, "") if window else ""
        if not image:
            raise mistake(f'container = "{_LAST_GOOD}": expected a containers stage before this one, found none')
    # Slots that own GPUs show a container their own ones; without any, it sees those it is given.
    divided = {"CUDA_VISIBLE_DEVICES": "@GPUS@"} if hunt.engine.gpus > 0 else {}
    return KeptContainer(
        engine=engine,
        image=image,
        name=f"karat-{place.hunt}-@SLOT@",
        hunt=place.hunt,
        mounts=("@AREA@:@AREA@", *borrowed, *own),
        env={"KARAT_OUT": "@OUT@", **_TRUST, **theirs.env, **divided},
        passed=hunt.probe.env_pass,
        gpus=theirs.gpus or ("all" if divided else None),
        options=("--cpuset-cpus=@CORES@", *theirs.options),
    )


class CommitRange(NamedTuple):
    """A repository whose two commits are known."""

    old: str
    new: str


TimeRange = tuple[float, float]  # Seconds since 1970 between which the others are looked at.


class GitTimeline(Timeline):
    """Points that are sets of commits, one of each repository of a hunt, and can be mixed."""

    def __init__(self, hunt: HuntSettings, settings: CheckoutSettings, window: Window | None, place: Workspace) -> None:
        """Every repository is opened; it has no points yet."""
        self.settings, self.mirrors = settings, {each.name: Mirror(each, place) for each in hunt.repositories}
        self.tips: dict[str, str] = {}  # Name → the branch's last commit.
        self.notes = notes = list[str]()
        for name, mirror in self.mirrors.items():
            self.tips[name] = mirror.open(fresh=window is None)
            # What areas of this machine are given to borrow the mirror's objects.
            objects = f"{mirror.path / 'objects'}\n".encode()
            write_bytes(mirror.path / _ALTERNATES, objects, durable=False)
            notes += [f"{mirror.stale}; using what was fetched before"] if mirror.stale else []
            if cut := mirror.shallow_at[:SHORT]:
                said = f"the history is cut off at {cut} (a shallow clone); older commits are not available"
                notes.append(f"{name}: {said}")
        self._container = open_container(hunt, settings, window, place, tuple(self.mirrors.values()))

    def point(self, commits: Mapping[str, str], label: str, time: float) -> Point:
        """The point of these commits; every point has the container in common."""
        fixed = {IMAGE: self._container.image} if self._container else {}
        return Point(id=point_id(commits), label=label, when=from_timestamp(time), parts={**fixed, **commits})

    def commits(self, point: Point) -> dict[str, str]:
        return {name: point.parts[name] for name in self.mirrors if name in point.parts}

    def identity(self, point: Point) -> Mapping[str, str]:
        more = {name: point.parts[name] for name in (IMAGE, REBUILD) if name in point.parts}
        return {**{f"commit.{name}": commit for name, commit in self.commits(point).items()}, **more}

    def prepare(self, point: Point) -> Sequence[JobCommand]:
        """Everything that brings a point there: check out, build."""
        commands = [self._container.start()] if self._container else []
        clean = self.settings.clean or self.settings.rebuild > 1
        for name, commit in self.commits(point).items():
            commands.extend(Checkout(mirror=self.mirrors[name], clean=clean).commands(commit))
        if words := tables.split_command(self.settings.build):
            timeout = parse_duration(self.settings.build_timeout)
            commands.append(self.command(point, JobCommand(role="build", name="build", argv=words, timeout=timeout)))
        return commands

    def command(self, point: Point, command: JobCommand) -> JobCommand:
        """In the repository (of several: in the folder that holds them), or there within the container."""
        commits = {self.mirrors[name].settings.commit_variable: commit for name, commit in self.commits(point).items()}
        if REBUILD in point.parts:
            commits["KARAT_REBUILD"] = point.parts[REBUILD]
        cwd = command.cwd
        if cwd == "@AREA@" and len(self.mirrors) == 1:  # of several, in the folder that holds them
            cwd = Checkout(mirror=next(iter(self.mirrors.values()))).folder
        placed = msgspec.structs.replace(command, cwd=cwd, env={**commits, **command.env})
        return self._container.inside(placed) if self._container else placed

    def mixed(self, old: Point, new: Point, taken: frozenset[str]) -> Point | None:
        """The old point with those repositories of the new one."""
        before, after = self.commits(old), self.commits(new)
        if before.keys() != after.keys() or not taken <= before.keys():
            return None
        commits = {name: after[name] if name in taken else before[name] for name in before}
        for point in (old, new):
            if commits == self.commits(point):
                return point
        moved = [name for name in commits if before[name] != after[name]]
        newer = " ".join(name for name in moved if name in taken)
        older = " ".join(name for name in moved if name not in taken)
        mix = self.point(commits, f"new {newer}, old {older}", 0)
        return msgspec.structs.replace(mix, when=new.when)

    def suspects(self, old: Point, new: Point) -> Sequence[Suspect]:
        """Every commit between two points, those that cannot be built as well."""
        before, after = self.commits(old), self.commits(new)
        moved = [name for name in before if name in after and before[name] != after[name]]
        return [suspect for name in moved for suspect in self.mirrors[name].suspects(before[name], after[name])]

    def finer(self, old: Point, new: Point) -> bool:
        """A merge has a branch, which can be looked into."""
        before, after = self.commits(old), self.commits(new)
        moved = [name for name in before if before[name] != after.get(name)]
        if self.name == "checkouts" or len(moved) != 1:
            return False
        name = moved[0]
        return bool(self.mirrors[name].merged_branches(before[name], after[name]))

    def close(self) -> None:
        if kept := self._container:
            kept.remove()


def open_commits(settings: HuntSettings, _stage: Stage, window: Window | None, place: Workspace) -> GitTimeline:
    """Every commit between two points of a coarser stage, or between two that hunt.toml names."""
    own = settings.commits or settings.checkouts
    timeline = GitTimeline(settings, own, window, place)
    timeline.name, mirrors = "commits", timeline.mirrors
    notes: list[str] = []
    if window is None:
        ends = _own_ends(timeline)
    else:
        ends, notes = _recorded_ranges(timeline, window)
        if len(ends) < len(mirrors):
            times = _window_times(settings, timeline, window)
            for name in mirrors.keys() - ends.keys():
                ends[name] = _range_by_time(timeline, name, times)
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
        timeline.points, timeline.notes = _commit_points(timeline, start, lines), (*timeline.notes, *notes)
        return timeline
    name, merge = moved[0], ends[moved[0]].new[:SHORT]
    which = "the branch" if len(branches) == 1 else f"the {len(branches)} branches, one after the other, that"
    notes.append(f"{name}: {merge} is a merge; these are the commits of {which} it merged, each as it was there")
    why = "how conflicts were resolved, or how the branch and the code before it work together"
    timeline.absent = f"so it came with the merge {merge} itself: {why}"
    points: list[Point] = []
    breaks = []
    for number, (base, commits) in enumerate(branches):
        first, *others = _commit_points(timeline, {**start, name: base}, {name: commits})
        breaks.append(len(points))
        # Several may leave from the same commit.
        numbered = {"id": f"{first.id} #{number + 1}", "label": f"{first.label} #{number + 1}"} if number else {}
        points += [msgspec.structs.replace(first, **numbered), *others]
    timeline.points, timeline.notes, timeline.breaks = points, (*timeline.notes, *notes), breaks[1:]
    return timeline


def _commit_points(
    timeline: GitTimeline, start: Mapping[str, str], lines: Mapping[str, Sequence[Commit]]
) -> list[Point]:
    def label(moved: Mapping[str, str]) -> str:
        """What moved; of one repository alone, its name goes without saying."""
        return point_id(moved).rpartition("@")[2] if len(start) == 1 else point_id(moved)

    moves = interleave(lines)
    # Where all start: as old as the newest of their commits, and no newer than what comes next.
    latest = max(timeline.mirrors[n].listed("--no-walk", c)[0].time for n, c in start.items())
    first = min(latest, moves[0][1].time) if moves else latest
    commits = dict(start)
    found = [timeline.point(commits, label(commits), first)]
    about = {n: timeline.mirrors[n].about([start[n], *(c.id for c in line)]) for n, line in lines.items()}
    nothing = ("", 1.0)
    if len(start) == 1:
        found = [msgspec.structs.replace(found[0], title=about[n].get(c, nothing)[0]) for n, c in start.items()]
    for name, commit in moves:
        commits = {**commits, name: commit.id}
        made = timeline.point(commits, label({name: commit.id}), commit.time)
        title, weight = about[name].get(commit.id, nothing)
        found.append(msgspec.structs.replace(made, title=title, weight=weight))
    return found


def _own_ends(timeline: GitTimeline) -> dict[str, CommitRange]:
    """What [commits] says: good and bad revisions, or start and end."""
    own, mirrors = timeline.settings, timeline.mirrors
    times = _own_times(timeline, float("inf"))
    if not own.good and times is None:
        wanted = "good = { NAME = 'REVISION' } (or start) in [commits], or a coarser stage"
        raise mistake(f"commits: expected {wanted}, found neither")
    found = {}
    for name, mirror in mirrors.items():
        timed = _range_by_time(timeline, name, times) if times else None
        new = mirror.commit(own.bad[name]) if name in own.bad else timed.new if timed else timeline.tips[name]
        # A repository of which nothing is said stays where it ends.
        old = mirror.commit(own.good[name]) if name in own.good else timed.old if timed else new
        found[name] = CommitRange(old, new)
    return found


def _range_by_time(timeline: GitTimeline, name: str, times: TimeRange) -> CommitRange:
    commits = timeline.mirrors[name].listed("--first-parent", timeline.tips[name])
    first, last = (index_at(commits, time) for time in times)
    if last < 0:
        end, start = (from_timestamp(time).isoformat() for time in (times[1], commits[0].time))
        raise mistake(f"repository {name}: expected commits before {end}, found the first at {start}")
    return CommitRange(commits[max(first, 0)].id, commits[last].id)


Lines = dict[str, tuple[Sequence[Commit], bool]]
"""Repository → its commits, oldest first, and whether the first and the last are exactly the ends."""


def open_checkouts(settings: HuntSettings, stage: Stage, window: Window | None, place: Workspace) -> GitTimeline:
    """The instants between two moments, or between two points of a coarser stage."""
    timeline = GitTimeline(settings, settings.checkouts, window, place)
    timeline.name = "checkouts"
    step = stage.step if stage.step is not None else parse_duration(settings.checkouts.step)
    exact, notes = _recorded_ranges(timeline, window) if window else ({}, [])
    lines: Lines = {}
    for name, mirror in timeline.mirrors.items():
        if name in exact:
            line, odd = mirror.line(*exact[name])
            notes += odd
            old = mirror.listed("--no-walk", exact[name].old)[0]
            # The line's dates are in order among themselves; its first commit must not come after them.
            start = min([old.time, *(commit.time for commit in line[:1])])
            lines[name] = ([Commit(old.id, start), *line], True)
        else:
            lines[name] = (mirror.listed("--first-parent", timeline.tips[name]), False)
    if window is None:
        own = _own_times(timeline, max((line[-1].time for line, _ in lines.values() if line), default=0))
        if own is None:
            said = "checkouts: expected start (and end) in [checkouts], or a coarser stage before it, found neither"
            raise mistake(said)
        moments = instants(*own, step)
    else:
        spans: list[TimeRange] = [(line[0].time, line[-1].time) for line, exact in lines.values() if exact]
        if len(spans) < len(lines):
            spans.append(_window_times(settings, timeline, window))
        first, last = min(start for start, _ in spans), max(end for _, end in spans)
        # On round times, between the window's two ends; commits of one second are a window as well.
        round_time = math.floor(first / step) * step + step
        moments = [first, *(instants(round_time, last, step) if round_time < last else [last])]
    timeline.points, timeline.notes = _checkout_points(timeline, lines, moments), (*timeline.notes, *notes)
    return timeline


def _checkout_points(timeline: GitTimeline, lines: Lines, moments: Sequence[float]) -> list[Point]:
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
        point = timeline.point(commits, label, time)
        if lacking := [name for name in lines if name not in commits]:
            missing = f"{' and '.join(lacking)} had no commit yet"
            point = msgspec.structs.replace(point, id=label, missing=missing)
        found.append(point)
    return found


def _recorded_ranges(timeline: GitTimeline, window: Window) -> tuple[dict[str, CommitRange], list[str]]:
    """Repositories whose commits a coarser stage recorded, at both of its points; and what is odd about them."""
    found: dict[str, CommitRange] = {}
    notes: list[str] = []
    for name, mirror in timeline.mirrors.items():
        # What was really under test is believed before what was meant to be.
        ends = ((window.old, window.old_identity), (window.new, window.new_identity))
        old, new = (known.get(f"commit.{name}", "").strip() or end.parts.get(name, "").strip() for end, known in ends)
        try:
            if old and new:
                found[name] = CommitRange(_commit(mirror, old), _commit(mirror, new))
        except CannotVerify as error:
            notes.append(f"{error}; the branch's commit at that time is used instead")
    if len(found) == len(timeline.mirrors) and all(e.old == e.new for e in found.values()):
        what = "something else (the image, another package), or the commits that were recorded are not those that ran"
        notes.append(f"{' and '.join(found)} did not move between the two points: the change came with {what}")
    return found, notes


def _commit(mirror: Mirror, text: str) -> str:
    """A recorded id, also a short one. A name would be somebody else's by now: branches move."""
    if not tables.COMMIT.fullmatch(text.lower()):
        said = f"repository {mirror.name}: expected commit.{mirror.name} to be a commit id, found {text[:80]!r}"
        raise CannotVerify(said, next_command=tables.EDIT)
    return mirror.commit(text.lower())


def _window_times(hunt: HuntSettings, timeline: GitTimeline, window: Window) -> TimeRange:
    """When to look, where a coarser stage tells times only.

    An image of a day was made some time in that day, and nobody knows in which zone: one step of its timeline is added
    at the end, and on both sides what a day somewhere on earth is before or after UTC's.
    """
    if window.old.when is None or window.new.when is None:
        commits = "the commits of each repository (probe.identify that prints commit.NAME=…)"
        raise mistake(f"expected the coarser stage to tell {commits}, or points that have a time, found neither")
    start, end = window.old.when.timestamp(), window.new.when.timestamp()
    dated = IMAGE in window.new.parts and not set(timeline.mirrors) & set(window.new.parts)
    if dated and hunt.containers:
        start, end = start - _EARLIEST, end + parse_duration(hunt.containers.step) + _LATEST
    return start, end


def _own_times(timeline: GitTimeline, latest: float) -> TimeRange | None:
    """What hunt.toml says itself, up to the branches' ends unless it says until when; None: it says nothing."""
    start, end = timeline.settings.start, timeline.settings.end
    if start is None:
        return None
    found = start.timestamp(), end.timestamp() if end else latest
    if found[1] <= found[0]:
        last = end.isoformat() if end else "branches that end before it"
        raise mistake(f"expected a start before the end, found {start.isoformat()} and {last}")
    return found


def point_id(commits: Mapping[str, str]) -> str:
    """`xla@1a2b3c4d5e jax@5d6e7f8a9b`; the same in every run of a hunt."""
    return " ".join(f"{name}@{commit[:SHORT]}" for name, commit in commits.items())
