"""Checkouts: several repositories kept in step by time.

At each instant, every repository is at the last commit that was part of its branch by then, along first parents; which
dates are believed is told in `hunt.history`. Instants at which no repository moved are one point with the one before.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from karat.findings import UsageError
from karat.hunt import durations
from karat.hunt.ends import Ends, Times, exact_ends, own_times, window_times
from karat.hunt.git_timeline import GitTimeline
from karat.hunt.history import Commit, at, instants, moment
from karat.hunt.lines import line_between
from karat.hunt.point import Point, Window
from karat.hunt.repositories import Repositories, odd, open_repositories, point_id
from karat.hunt.settings import HuntSettings, Stage
from karat.hunt.timeline import Place
from karat.hunt.words import EDIT


def open_checkouts(
    settings: HuntSettings, stage: Stage, window: Window | None, place: Place
) -> GitTimeline:
    """The instants between two moments, or between two points of a coarser stage."""
    repositories = open_repositories(settings, settings.checkouts, window, place)
    step = stage.step if stage.step is not None else durations.seconds(settings.checkouts.step)
    if step <= 0:
        raise UsageError("checkouts: expected a step above zero, found 0", next_command=EDIT)
    lines, notes = _lines(repositories, window)
    whole = _times(settings, repositories, window, lines)
    moments = _instants(whole, step, aligned=window is not None)
    return GitTimeline("checkouts", repositories, _points(repositories, lines, moments), odd(notes))


Lines = dict[str, tuple[Sequence[Commit], bool]]
"""Repository → its commits, oldest first, and whether the first and the last are exactly the ends."""


def _lines(repositories: Repositories, window: Window | None) -> tuple[Lines, list[str]]:
    ends_known = exact_ends(repositories, window) if window else Ends(exact={})
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
) -> Times:
    known = [commits for commits, exact in lines.values() if exact]
    spans = [Times(start=line[0].time, end=line[-1].time) for line in known]
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
    return Times(start=min(s.start for s in spans), end=max(s.end for s in spans))


def _instants(whole: Times, step: float, *, aligned: bool) -> list[float]:
    """By step from the start; within a coarser stage's window on round times, between its two ends."""
    if not aligned:
        return instants(whole.start, whole.end, step)
    first = math.floor(whole.start / step) * step + step
    between = instants(first, whole.end, step) if first < whole.end else [whole.end]
    # Commits of one second are a window as well: its two ends are then at the same time.
    return [whole.start, *between]


def _points(repositories: Repositories, lines: Lines, moments: Sequence[float]) -> list[Point]:
    found: list[Point] = []
    before: dict[str, str] | None = None
    for number, time in enumerate(moments):
        commits = _commits(lines, time, first=number == 0, last=number == len(moments) - 1)
        if commits == before:
            continue
        before = commits
        lacking = [name for name in lines if name not in commits]
        label = _label(time)
        found.append(
            Point(
                id=label if lacking else point_id(commits),
                label=label,
                when=moment(time),
                parts={**repositories.fixed, **commits},
                missing=f"{' and '.join(lacking)} had no commit yet" if lacking else "",
            )
        )
    return found


def _commits(lines: Lines, time: float, *, first: bool, last: bool) -> dict[str, str]:
    found = {}
    for name, (commits, exact) in lines.items():
        index = at(commits, time)
        if exact:
            index = 0 if first else len(commits) - 1 if last else max(index, 0)
        if index >= 0:
            found[name] = commits[index].id
    return found


def _label(time: float) -> str:
    when = moment(time)
    return f"{when:%Y-%m-%d %H:%M}" if time % 60 == 0 else f"{when:%Y-%m-%d %H:%M:%S}"
