"""Commits: one after the other, of one repository or of several, where one moves at a time.

Along first parents, a merge is one step; what it brought is looked into when it is found: the same stage, opened between the
merge and its first parent, lists the commits of the merged branch, each tested as it was on its branch.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from karat.findings import UsageError
from karat.hunt.ends import Exact, exact_ends, own_times, window_times
from karat.hunt.git_timeline import GitTimeline
from karat.hunt.history import Commit, at, interleaved, moment
from karat.hunt.lines import branch_of_merge, line_between
from karat.hunt.point import Point, Window
from karat.hunt.repositories import SHORT, Repositories, odd, open_repositories, point_id
from karat.hunt.settings import HuntSettings, Stage
from karat.hunt.timeline import Place
from karat.hunt.words import EDIT


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
    place: Place,
) -> GitTimeline:
    """Every commit between two points of a coarser stage, or between two that hunt.toml names."""
    own = settings.commits or settings.checkouts
    repositories = open_repositories(settings, own, window, place)
    ends, notes = (
        _window_ends(settings, repositories, window) if window else (_own_ends(repositories), ())
    )
    walk = _merged_branch(repositories, ends) if window and own.follow_merges else None
    walk = walk or _walk(repositories, ends)
    points, odds = _points(repositories, walk), odd((*notes, *walk.notes))
    return GitTimeline("commits", repositories, points, odds, absent=walk.absent)


def _walk(repositories: Repositories, ends: Mapping[str, Exact]) -> Walk:
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


def _merged_branch(repositories: Repositories, ends: Mapping[str, Exact]) -> Walk | None:
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
    moves = interleaved(walk.lines)
    found = [_first(repositories, commits, moves[0][1].time if moves else None)]
    for name, commit in moves:
        commits = {**commits, name: commit.id}
        found.append(
            Point(
                id=point_id(commits),
                label=_label(repositories, {name: commit.id}),
                when=moment(commit.time),
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
        when=moment(latest),
        parts={**repositories.fixed, **commits},
    )


def _window_ends(
    settings: HuntSettings, repositories: Repositories, window: Window
) -> tuple[dict[str, Exact], tuple[str, ...]]:
    ends = exact_ends(repositories, window)
    exact = dict(ends.exact)
    if len(exact) < len(repositories.mirrors):
        times = window_times(settings, repositories, window)
        for name in repositories.mirrors:
            if name not in exact:
                exact[name] = _by_time(repositories, name, times.start, times.end)
    return {name: exact[name] for name in repositories.mirrors}, ends.notes


def _own_ends(repositories: Repositories) -> dict[str, Exact]:
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
        found[name] = Exact(old=mirror.commit(own.good[name]) if name in own.good else old, new=new)
    return found


def _by_time(repositories: Repositories, name: str, start: float, end: float) -> Exact:
    commits, _ = repositories.mirrors[name].line(repositories.tips[name])
    first, last = at(commits, start), at(commits, end)
    if last < 0:
        raise UsageError(
            f"repository {name}: expected commits before {moment(end).isoformat()}, "
            f"found the first at {moment(commits[0].time).isoformat()}",
            next_command=EDIT,
        )
    return Exact(old=commits[max(first, 0)].id, new=commits[last].id)


def _refuse_unknown(repositories: Repositories, names: Sequence[str]) -> None:
    unknown = [name for name in names if name not in repositories.mirrors]
    if unknown:
        raise UsageError(
            f"commits: expected names of [[repositories]] ({', '.join(repositories.mirrors)}) in good and bad, "
            f"found {', '.join(unknown)}",
            next_command=EDIT,
        )
