"""Timeline: an ordered list of points, and how each is put under test.

Built-in ones and third parties' register under the entry point `karat.timelines`: a factory
`(HuntSettings, Stage, Window | None, Place) -> Timeline`; see `hunt.opening`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Protocol

import msgspec

from karat.engines.job import Command
from karat.findings import Finding
from karat.hunt.point import Point, Suspect


class Place(msgspec.Struct, frozen=True, kw_only=True):
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
