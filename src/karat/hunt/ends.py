"""Ends: which commit each repository has where a timeline begins and where it ends.

Known exactly where the coarser stage recorded commits (`commit.NAME` of its identity, or its points' parts); else by time,
from the branch.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from karat.findings import CannotVerify, UsageError
from karat.hunt import durations, git_program
from karat.hunt.point import Point, Window
from karat.hunt.repositories import IMAGE, Repositories
from karat.hunt.settings import HuntSettings
from karat.hunt.words import EDIT


class Exact(msgspec.Struct, frozen=True, kw_only=True):
    """A repository whose two commits are known."""

    old: str
    new: str


class Times(msgspec.Struct, frozen=True, kw_only=True):
    """Seconds since 1970 between which the others are looked at."""

    start: float
    end: float


class Ends(msgspec.Struct, frozen=True, kw_only=True):
    """What a coarser stage recorded."""

    exact: dict[str, Exact]
    notes: tuple[str, ...] = ()


def exact_ends(repositories: Repositories, window: Window) -> Ends:
    """Repositories whose commits a coarser stage recorded, at both of its points."""
    found: dict[str, Exact] = {}
    notes = []
    for name, mirror in repositories.mirrors.items():
        old = _recorded(window.old, window.old_identity, name)
        new = _recorded(window.new, window.new_identity, name)
        try:
            if old and new:
                found[name] = Exact(old=mirror.commit(old), new=mirror.commit(new))
        except CannotVerify as error:
            notes.append(f"{error}; what the branch had at that time is taken instead")
    if len(found) == len(repositories.mirrors) and all(e.old == e.new for e in found.values()):
        notes.append(
            f"{' and '.join(found)} did not move between the two points: the change came with something else "
            "(the image, another package), or the commits that were recorded are not those that ran"
        )
    return Ends(exact=found, notes=tuple(notes))


def window_times(hunt: HuntSettings, repositories: Repositories, window: Window) -> Times:
    """When to look, where a coarser stage tells times only.

    An image of a day was made some time before the end of that day, so one step of its timeline is added.
    """
    if window.old.when is None or window.new.when is None:
        raise UsageError(
            "expected the coarser stage to tell the commits of each repository "
            "(probe.identify that prints commit.NAME=…), or points that have a time, found neither",
            next_command=EDIT,
        )
    dated = IMAGE in window.new.parts and not set(repositories.mirrors) & set(window.new.parts)
    late = durations.seconds(hunt.containers.step) if dated and hunt.containers else 0.0
    margin = durations.seconds(repositories.settings.margin)
    start, end = window.old.when.timestamp(), window.new.when.timestamp()
    return Times(start=start - margin, end=end + late + margin)


def own_times(repositories: Repositories, latest: float) -> Times | None:
    """What hunt.toml says itself, up to the branches' ends unless it says until when; None: it says nothing."""
    start, end = repositories.settings.start, repositories.settings.end
    if start is None:
        return None
    found = Times(start=start.timestamp(), end=end.timestamp() if end else latest)
    if found.end <= found.start:
        raise UsageError(
            f"expected a start before the end, found {start.isoformat()} and "
            f"{end.isoformat() if end else 'branches that end before it'}",
            next_command=EDIT,
        )
    return found


def _recorded(point: Point, identity: Mapping[str, str], name: str) -> str:
    """The commit a point had; what was really under test is believed before what was meant to be."""
    for text in (identity.get(f"commit.{name}", ""), point.parts.get(name, "")):
        if git_program.is_commit_id(text.strip().lower()):
            return text.strip().lower()
    return ""
