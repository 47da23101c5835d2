"""Repositories: those of a hunt, opened: their mirrors, their places in a work area, the container they are built in.

Both timelines that are made of git history (checkouts by time, commits one by one) stand on this.
"""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence

import msgspec

from karat.engines.job import Command
from karat.findings import Finding, Severity, UsageError
from karat.hunt import durations
from karat.hunt.build_container import open_container
from karat.hunt.kept_container import KeptContainer
from karat.hunt.mirrors import Mirror
from karat.hunt.point import Point, Window
from karat.hunt.repository_names import IMAGE, check_names, folder_of
from karat.hunt.settings import CheckoutSettings, HuntSettings
from karat.hunt.timeline import Place
from karat.hunt.words import EDIT, split
from karat.hunt.work_area import Checkout, commit_variables, lend

SHORT = 12
"""Digits of a commit in ids and labels."""


class Repositories(msgspec.Struct, frozen=True, kw_only=True):
    """The repositories of a hunt, opened."""

    mirrors: Mapping[str, Mirror]
    tips: Mapping[str, str]
    """Name → the branch's last commit."""
    settings: CheckoutSettings
    container: KeptContainer | None = None

    @property
    def home(self) -> str:
        """Where builds and probes start: in the repository; of several, in the folder that holds them."""
        only = list(self.mirrors.values())
        return Checkout(mirror=only[0]).folder if len(only) == 1 else "@AREA@"

    @property
    def fixed(self) -> dict[str, str]:
        """Parts that every point has in common."""
        return {IMAGE: self.container.image} if self.container else {}

    def commits(self, point: Point) -> dict[str, str]:
        """Name → commit, of the repositories only."""
        return {name: point.parts[name] for name in self.mirrors if name in point.parts}

    def prepare(self, point: Point) -> list[Command]:
        """Everything that brings a point there: check out, build."""
        commits = self.commits(point)
        commands = [self.container.start()] if self.container else []
        for name, commit in commits.items():
            commands.extend(self._checkout(name).commands(commit))
        words = split(self.settings.build)
        if words:
            timeout = durations.seconds(self.settings.build_timeout)
            build = Command(role="build", name="build", argv=words, timeout=timeout)
            commands.append(self.command(point, build))
        return commands

    def _checkout(self, name: str) -> Checkout:
        mine = folder_of(self.mirrors[name].settings)
        others = (folder_of(each.settings) for each in self.mirrors.values())
        inside = tuple(str(folder.relative_to(mine)) for folder in others if mine in folder.parents)
        return Checkout(mirror=self.mirrors[name], clean=self.settings.clean, inside=inside)

    def command(self, point: Point, command: Command) -> Command:
        """A command of the user's at that point."""
        placed = msgspec.structs.replace(
            command,
            cwd=self.home if command.cwd == "@AREA@" else command.cwd,
            env={**commit_variables(self.commits(point)), **command.env},
        )
        return self.container.inside(placed) if self.container else placed

    def findings(self) -> list[Finding]:
        """What is odd about the repositories themselves."""
        stale = [
            Finding(
                kind="history-odd",
                severity=Severity.WARN,
                message=f"{mirror.stale}; what was fetched before is used",
                path=mirror.shown_url,
                next=f"git ls-remote {shlex.quote(mirror.shown_url)}",
            )
            for mirror in self.mirrors.values()
            if mirror.stale
        ]
        shallow = [
            Finding(
                kind="history-odd",
                severity=Severity.WARN,
                message=f"{name}: the history is cut off at {mirror.shallow_at[:SHORT]} (a shallow clone); "
                "older commits cannot be had",
                path=mirror.shown_url,
                next=f"git -C {shlex.quote(mirror.shown_url)} fetch --unshallow",
            )
            for name, mirror in self.mirrors.items()
            if mirror.shallow_at
        ]
        return stale + shallow


def open_repositories(
    hunt: HuntSettings, settings: CheckoutSettings, window: Window | None, place: Place
) -> Repositories:
    """Every repository of hunt.toml, cloned or as it is."""
    if not hunt.repositories:
        raise UsageError(
            "expected at least one [[repositories]] with name and url, found none",
            next_command=EDIT,
        )
    check_names(hunt.repositories)
    mirrors = {each.name: Mirror(each, place) for each in hunt.repositories}
    tips = {}
    for name, mirror in mirrors.items():
        tips[name] = mirror.open(fresh=window is None)
        lend(mirror)
    container = open_container(hunt, settings, window, place, tuple(mirrors.values()))
    return Repositories(mirrors=mirrors, tips=tips, settings=settings, container=container)


def point_id(commits: Mapping[str, str]) -> str:
    """`xla@1a2b3c4d5e jax@5d6e7f8a9b`; the same in every run of a hunt."""
    return " ".join(f"{name}@{commit[:SHORT]}" for name, commit in commits.items())


def odd(notes: Sequence[str]) -> list[Finding]:
    """Sentences about a history as findings."""
    return [Finding(kind="history-odd", severity=Severity.INFO, message=note) for note in notes]
