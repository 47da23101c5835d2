"""Ends: which commit each repository has where a timeline begins and where it ends.

Known exactly where the coarser stage recorded commits (`commit.NAME` of its identity, or its points' parts); else by time,
from the branch.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

import msgspec

from karat.findings import CannotVerify, UsageError
from karat.hunt import durations
from karat.hunt.mirrors import Mirror
from karat.hunt.point import Point, Window
from karat.hunt.repositories import Repositories
from karat.hunt.repository_names import IMAGE
from karat.hunt.settings import HuntSettings
from karat.hunt.words import EDIT

_ID = re.compile(r"[0-9a-f]{7,64}")
_HOUR = 3600.0
_EARLIEST, _LATEST = 14 * _HOUR, 12 * _HOUR
"""A day begins so long before UTC's, and ends so long after it, where clocks are furthest ahead and behind."""


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
                found[name] = Exact(old=_commit(mirror, old), new=_commit(mirror, new))
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
    margin = durations.seconds(repositories.settings.margin)
    start, end = window.old.when.timestamp() - margin, window.new.when.timestamp() + margin
    if dated and hunt.containers:
        start, end = start - _EARLIEST, end + durations.seconds(hunt.containers.step) + _LATEST
    return Times(start=start, end=end)


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
