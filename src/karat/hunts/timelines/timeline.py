"""Timeline: an ordered list of points, and how each is put under test.

Built-in ones and third parties' register under the entry point `karat.timelines`: a factory
`(HuntSettings, Stage, Window | None, Place) -> Timeline`; see `hunts.timelines.timeline`.
"""

from __future__ import annotations

import datetime as dt
import pkgutil
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Protocol

import msgspec
from msgspec import structs

from karat.engines.job import Command
from karat.findings import Finding, UsageError
from karat.hunts.model import Point, Suspect, Window
from karat.hunts.settings import HuntSettings, Stage
from karat.hunts.stages import GROUP, stages


class Workspace(msgspec.Struct, frozen=True, kw_only=True):
    """Where a hunt works."""

    root: Path
    """The folder of hunt.toml: what its paths are seen from."""
    work: Path
    """Kept folders: clones, builds, environments, caches."""
    hunt: str
    """A short id of this hunt, for names of containers."""


class Timeline(Protocol):
    """An ordered list of points, and how each is put under test."""

    @property
    def name(self) -> str:
        """`containers`, `checkouts`, `commits`, `packages`, `values`."""

    @property
    def points(self) -> Sequence[Point]:
        """Oldest first; those that cannot be had are there, and say why."""

    @property
    def findings(self) -> Sequence[Finding]:
        """What a person should know of the list itself."""

    def identity(self, point: Point) -> Mapping[str, str]:
        """What is known of a point without running it: `image.digest`, `commit.NAME`, `package.NAME`."""

    def prepare(self, point: Point) -> Sequence[Command]:
        """Commands that bring the point there: pull, check out, build, install. Roles prepare and build."""

    def command(self, point: Point, command: Command) -> Command:
        """The user's command, wrapped so that it runs at that point: in its container, with its environment first."""

    def ahead(self, points: Sequence[Point]) -> None:
        """These come next, most likely: what can be fetched in the background may be."""

    def mixed(self, old: Point, new: Point, taken: frozenset[str]) -> Point | None:
        """The old point with those parts of the new one; None where parts cannot be swapped."""

    def suspects(self, old: Point, new: Point) -> Sequence[Suspect]:
        """What lies between two neighbouring points, newest last."""

    def close(self) -> None:
        """Ends background work; removes kept containers."""


# DOC-HERE opening: Opening: from a stage to its timeline.
#
# Timelines register under the entry point `karat.timelines`, the built-in ones like a third party's: a callable that takes
# the settings, the stage, the window of a coarser stage and the place, and returns a `Timeline`.

__all__ = ["open_timeline", "stages"]

Factory = Callable[[HuntSettings, Stage, Window | None, Workspace], Timeline]
_BUILT_IN = {
    "containers": "karat.hunts.timelines.containers:open_containers",
    "checkouts": "karat.hunts.timelines.git:open_checkouts",
    "commits": "karat.hunts.timelines.git:open_commits",
    "packages": "karat.hunts.timelines.packages:open_packages",
    "values": "karat.hunts.timelines.values:open_values",
}


def open_timeline(
    settings: HuntSettings, stage: Stage, window: Window | None, place: Workspace
) -> Timeline:
    """The timeline of a stage: its points are listed, and nothing is pulled or built yet."""
    _goldens(settings, place)
    timeline = _factory(stage.timeline)(settings, stage, window, place)
    if not timeline.points:
        raise UsageError(
            f"stage {stage.text!r}: expected points to put under test, found none",
            next_command="edit hunt.toml",
        )
    return timeline


def _goldens(settings: HuntSettings, place: Workspace) -> None:
    """A golden that is not there would make every point broken, after all of them were built."""
    for number, metric in enumerate(settings.probe.metrics, 1):
        if metric.golden is not None and not (place.root / metric.golden).exists():
            raise UsageError(
                f"probe.metrics number {number} ({metric.name}): expected a golden in {place.root / metric.golden}, found none",
                next_command="edit hunt.toml",
            )


def _factory(name: str) -> Factory:
    if name in _BUILT_IN:
        factory: Factory = pkgutil.resolve_name(_BUILT_IN[name])
        return factory
    from importlib.metadata import entry_points  # noqa: PLC0415 - only for third parties' timelines

    point = next(iter(entry_points(group=GROUP, name=name)), None)
    if point is None:
        raise UsageError(f"stages: no timeline is called {name!r}", next_command="edit hunt.toml")
    try:
        theirs: Factory = point.load()
    except (ImportError, AttributeError) as error:
        raise UsageError(
            f"expected the timeline {name!r} in {point.value}, but it cannot be imported: {error}",
            next_command="pip check",
        ) from error
    return theirs


# DOC-HERE skipping: Skipping: points that hunt.toml says are not to be tried. Pure.

SKIPPED = "skipped, as hunt.toml says"


def mark_skipped(points: Sequence[Point], skip: Sequence[str]) -> tuple[Point, ...]:
    """The points, of which those that are to be skipped say so."""
    left_out = {index for text in skip for index in _matching(points, text)}
    return tuple(
        structs.replace(point, missing=point.missing or SKIPPED) if index in left_out else point
        for index, point in enumerate(points)
    )


def unmatched_skips(points: Sequence[Point], skip: Sequence[str]) -> tuple[str, ...]:
    """Words of `skip` that match no point."""
    return tuple(text for text in skip if not _matching(points, text))


def _matching(points: Sequence[Point], text: str) -> Sequence[int]:
    first, dots, last = (word.strip() for word in text.partition(".."))
    if not dots:
        return [i for i, point in enumerate(points) if text in {point.id, point.label}]
    start, end = _position(points, first, last=False), _position(points, last, last=True)
    return range(start, end + 1) if start is not None and end is not None else ()


def _position(points: Sequence[Point], word: str, *, last: bool) -> int | None:
    """Where a range begins or ends: at a point of that name, or at the first or last one within that time."""
    named = [i for i, point in enumerate(points) if word in {point.id, point.label}]
    if named:
        return named[0]
    moment = _moment(word, end=last)
    if moment is None:
        return None
    if last:
        within = [i for i, p in enumerate(points) if p.when is not None and p.when <= moment]
        return within[-1] if within else None
    within = [i for i, p in enumerate(points) if p.when is not None and p.when >= moment]
    return within[0] if within else None


def _moment(word: str, *, end: bool) -> dt.datetime | None:
    """A day or an instant; a day ends with its last moment."""
    try:
        found = dt.datetime.fromisoformat(word)
    except ValueError:
        return None
    if end and len(word) == len("2023-08-24"):
        found += dt.timedelta(days=1, microseconds=-1)
    return found if found.tzinfo else found.replace(tzinfo=dt.UTC)
