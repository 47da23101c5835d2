"""Timelines: an ordered list of points, and how each is put under test; opened by the name of a stage.

Built-in ones and third parties' register under the entry point `karat.timelines`: a factory
`(HuntSettings, Stage, Window | None, Workspace) -> Timeline`.
"""

from __future__ import annotations

import datetime as dt
import pkgutil
import shutil
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import msgspec
from msgspec import structs

from karat.engines.job import JobCommand
from karat.findings import UsageError
from karat.hunts.model import Point, Suspect, Window
from karat.hunts.settings import BUILT_IN, GROUP, HuntSettings, Stage, mistake

SKIPPED = "skipped, as hunt.toml says"


class Workspace(msgspec.Struct, frozen=True, kw_only=True):
    """Where a hunt works."""

    root: Path  # The folder of hunt.toml: what its paths are relative to.
    work: Path  # Kept folders: clones, builds, environments, caches.
    hunt: str  # A short id of this hunt, for names of containers.


class Timeline(ABC):
    """An ordered list of points, and how each is put under test."""

    name: str = ""  # `containers`, `checkouts`, `commits`, `packages`, `values`.
    points: Sequence[Point] = ()  # Oldest first; those that are not available are there, and say why.
    notes: Sequence[str] = ()  # Sentences: what a person should know of the list itself.
    title: str = ""  # What reports call the stage; empty: as hunt.toml does.
    absent: str = ""
    """What it means if a coarser stage's change does not show here; empty: nothing that is known beforehand."""
    breaks: Sequence[int] = ()  # Points that do not follow from the one before them: where another branch begins.

    @abstractmethod
    def identity(self, point: Point) -> Mapping[str, str]:
        """What is known of a point without running it: `image.digest`, `commit.NAME`, `package.NAME`."""

    def prepare(self, point: Point) -> Sequence[JobCommand]:  # noqa: ARG002
        """Commands that bring the point there: pull, check out, build, install. Roles prepare and build."""
        return ()

    @abstractmethod
    def command(self, point: Point, command: JobCommand) -> JobCommand:
        """The user's command, wrapped so that it runs at that point: in its container, with its environment first."""

    def ahead(self, points: Sequence[Point]) -> None:  # noqa: ARG002
        """These come next, most likely: what can be fetched in the background may be."""
        return

    def mixed(self, old: Point, new: Point, taken: frozenset[str]) -> Point | None:  # noqa: ARG002
        """The old point with those parts of the new one; None where parts cannot be swapped."""
        return None

    @abstractmethod
    def suspects(self, old: Point, new: Point) -> Sequence[Suspect]:
        """What lies between two neighbouring points, newest last."""

    def finer(self, old: Point, new: Point) -> bool:  # noqa: ARG002
        """Whether the same timeline, opened between these two neighbours, has something to look into."""
        return False

    def close(self) -> None:
        """End background work; remove kept containers."""
        return


def open_timeline(settings: HuntSettings, stage: Stage, window: Window | None, place: Workspace) -> Timeline:
    """The timeline of a stage: its points are listed, and nothing is pulled or built yet."""
    for number, metric in enumerate(settings.probe.metrics, 1):
        # A golden that is not there would make every point broken, after all of them were built.
        if metric.golden is not None and not (place.root / metric.golden).exists():
            where = f"probe.metrics number {number} ({metric.name})"
            raise mistake(f"{where}: expected a golden in {place.root / metric.golden}, found none")
        # So would a tool that is not there; that of a container or of another machine is theirs to miss.
        tool = {"perf": "perf", "cachegrind": "valgrind"}.get(metric.instructions or "")
        inside = stage.timeline == "containers" or settings.checkouts.container
        if tool and settings.engine.kind == "local" and not inside and shutil.which(tool) is None:
            raise mistake(f"probe.metrics number {number} ({metric.name}): expected {tool} to count with, found none")
    name = stage.timeline
    factory: Callable[[HuntSettings, Stage, Window | None, Workspace], Timeline]
    if name in BUILT_IN:
        module = "git" if name in {"checkouts", "commits"} else name
        factory = pkgutil.resolve_name(f"karat.hunts.timelines.{module}:open_{name}")
    else:
        from importlib.metadata import entry_points

        point = next(iter(entry_points(group=GROUP, name=name)), None)
        if point is None:
            raise mistake(f"stages: no timeline is called {name!r}")
        try:
            factory = point.load()
        except (ImportError, AttributeError) as error:
            said = f"expected the timeline {name!r} in {point.value}, but it cannot be imported: {error}"
            raise UsageError(said, next_command="pip check") from error
    timeline = factory(settings, stage, window, place)
    if not timeline.points:
        raise mistake(f"stage {stage.text!r}: expected points to put under test, found none")
    return timeline


def mark_skipped(points: Sequence[Point], skip: Sequence[str]) -> tuple[Point, ...]:
    """The points; those that hunt.toml skips say so."""
    left_out = {index for text in skip for index in _matching(points, text)}
    return tuple(
        structs.replace(point, missing=point.missing or SKIPPED) if index in left_out else point
        for index, point in enumerate(points)
    )


def notes_on(timeline: Timeline, points: Sequence[Point], skip: Sequence[str]) -> list[str]:
    """What a person should know of a list of points: its notes, and words of `skip` that match none."""
    skips = (f"skip: no point is called {text!r}" for text in skip if not _matching(points, text))
    return [*timeline.notes, *skips]


def _matching(points: Sequence[Point], text: str) -> Sequence[int]:
    first, dots, last = (word.strip() for word in text.partition(".."))
    if not dots:
        return [i for i, point in enumerate(points) if text in {point.id, point.label}]
    start, end = _position(points, first, last=False), _position(points, last, last=True)
    return range(start, end + 1) if start is not None and end is not None else ()


def _position(points: Sequence[Point], word: str, *, last: bool) -> int | None:
    """Where a range begins or ends: at a point of that name, or at the first or last one within that time."""
    for i, point in enumerate(points):
        if word in {point.id, point.label}:
            return i
    try:
        moment = dt.datetime.fromisoformat(word)
    except ValueError:
        return None
    moment += dt.timedelta(days=1, microseconds=-1) if last and len(word) == len("2023-08-24") else dt.timedelta()
    moment = moment if moment.tzinfo else moment.replace(tzinfo=dt.UTC)
    timed = [(i, at.when) for i, at in enumerate(points) if at.when is not None]
    inside = [i for i, when in timed if (when <= moment if last else when >= moment)]
    return inside[-1 if last else 0] if inside else None
