"""Code or environment? Two points, old and new, of which every part can be swapped: commits of repositories, and packages.

One timeline, which looks closer by what moved between the two ends it is opened with:

1. at first the 2×2: `code` (each repository) and `environment` are the parts; `hunts.attribution` swaps them;
2. environment, or both: every package that moved is a part, and groups of them are swapped;
3. code alone: its commits, as on the timeline `commits`; one package alone: its releases, as on the timeline `packages`.

What does not move stays what it is at both ends: a point's parts are commits, packages that moved somewhere between the two
lock files, and at the first step `environment`, which is `old` or `new`.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence

from msgspec import structs

from karat.engines.job import JobCommand
from karat.hunts.model import Point, Suspect, Window
from karat.hunts.settings import ENVIRONMENT, HuntSettings, PackageSettings, SplitSettings, Stage, mistake
from karat.hunts.timelines.git import GitTimeline, open_commits
from karat.hunts.timelines.locks import Pins, read_side, requirement
from karat.hunts.timelines.packages import Environment, Packages, find_uv, open_packages, uv_variables
from karat.hunts.timelines.timeline import Timeline, Workspace
from karat.net.package_index import find_address
from karat.report.words import few
from karat.system.hashes import sha256_hex

ABSENT = "not installed"  # The version of a package that one side lacks.


class Split(Timeline):
    """Points between which code, packages or both move."""

    name = "split"
    title = "code and environment"

    def __init__(self, settings: SplitSettings, old: Pins, new: Pins, code: GitTimeline) -> None:
        self._settings, self._code, self._sides = settings, code, {"old": old, "new": new}
        self._uv, self._address = find_uv(), find_address(settings.index)
        self.notes = code.notes
        self.inner: GitTimeline | Packages | None = None  # Of one repository's commits, or one package's releases.

    def parts(self, point: Point) -> dict[str, str]:
        """Commits, and every package that either side has."""
        old, new = self._sides["old"], self._sides["new"]
        own = self._sides.get(point.parts.get(ENVIRONMENT, ""), {**old, **point.parts})
        return {**self._code.commits(point), **{name: own.get(name, ABSENT) for name in sorted({**old, **new})}}

    def _environment(self, point: Point) -> Environment:
        parts, own = self.parts(point).items(), self._settings
        pins = (requirement(*pin) for pin in parts if pin[0] not in self._code.mirrors and pin[1] != ABSENT)
        wanted = (*pins, *own.requires)
        return Environment(requirements=wanted, python=own.python or sys.executable, alone=own.no_deps)

    def identity(self, point: Point) -> Mapping[str, str]:
        commits = self._code.commits(point)
        return {"packages": self._environment(point).key} | {f"commit.{name}": c for name, c in commits.items()}

    def prepare(self, point: Point) -> Sequence[JobCommand]:
        code = self._code.prepare(point)
        made = self._environment(point).commands(self._uv, uv_variables(self._address))
        return (*made, *(self._inside(point, one) if one.role == "build" else one for one in code))

    def command(self, point: Point, command: JobCommand) -> JobCommand:
        return self._inside(point, self._code.command(point, command))

    def _inside(self, point: Point, command: JobCommand) -> JobCommand:
        return self._environment(point).around(command, command.cwd)

    def mixed(self, old: Point, new: Point, taken: frozenset[str]) -> Point | None:
        moved = moved_parts(old, new)
        if self.inner is not None or not taken <= set(moved):
            return None
        if len(taken) in {0, len(moved)}:
            return new if taken else old
        names = [name for name in moved if name in taken]
        ending = "-".join(names)
        if len(names) > 3:
            ending = f"{'-'.join(names[:2])}-and-{len(names) - 2}-{sha256_hex(ending.encode())[:4]}"
        parts = {name: (new if name in taken else old).parts[name] for name in old.parts}
        return Point(id=f"new-{ending}", label=f"new {few(names, 3)}", when=new.when, parts=parts)

    def finer(self, old: Point, new: Point) -> bool:
        moved = moved_parts(old, new)
        if self.inner is not None:
            return isinstance(self.inner, GitTimeline) and self.inner.finer(old, new)
        if ENVIRONMENT in moved or set(moved) <= set(self._code.mirrors):
            return True
        versions = [point.parts[moved[0]] for point in (old, new)]
        return len(moved) == 1 and not any(one == ABSENT or one.startswith("@") for one in versions)

    def suspects(self, old: Point, new: Point) -> Sequence[Suspect]:
        if self.inner is not None and (listed := self.inner.suspects(old, new)):
            return listed
        before, after, found = self.parts(old), self.parts(new), list[Suspect]()
        for name in (name for name, value in before.items() if after[name] != value):
            if mirror := self._code.mirrors.get(name):
                found += mirror.suspects(before[name], after[name])
            else:
                title = "new" if before[name] == ABSENT else f"was {before[name]}"
                found.append(Suspect(part=name, id=after[name], title=title))
        return found

    def close(self) -> None:
        if isinstance(self.inner, GitTimeline):
            self.inner.close()


def moved_parts(old: Point, new: Point) -> tuple[str, ...]:
    return tuple(name for name, value in old.parts.items() if new.parts[name] != value)


def open_split(settings: HuntSettings, stage: Stage, window: Window | None, place: Workspace) -> Split:
    """The 2×2 of [split] and [commits]; within a window what moved between its ends."""
    own, table = settings.split, settings.commits or settings.checkouts
    if own is None:
        raise mistake("expected a table [split] with old and new, found none")
    before, after = (read_side(s, place.root) if isinstance(s, str) else dict(s) for s in (own.old, own.new))
    code = GitTimeline(settings, table, window, place)
    made, mirrors = Split(own, before, after, code), code.mirrors
    if both := sorted({*before, *after} & {*mirrors}):
        raise mistake(f"repositories: expected other names than those of packages, found {', '.join(both)}")
    if window is None:
        for revisions, side in ((table.good, "old"), (table.bad, "new")):
            parts = {name: mirrors[name].commit(revisions.get(name, code.tips[name])) for name in mirrors}
            parts[ENVIRONMENT] = side if before != after else "old"
            made.points = [*made.points, Point(id=side, label=f"{side} code, {side} environment", parts=parts)]
        if not moved_parts(*made.points):
            raise mistake("expected the code or the packages to differ between old and new, found that neither does")
        return made
    moved = moved_parts(window.old, window.new)
    fixed = {name: value for name, value in window.old.parts.items() if name not in moved}
    if ENVIRONMENT in moved:
        # Every package that moved is a part now.
        made.title, first, last = "packages", made.parts(window.old), made.parts(window.new)
        kept = [name for name in first if name in mirrors or first[name] != last[name]]
        sides = ((window.old, first), (window.new, last))
        made.points = [structs.replace(point, parts={name: parts[name] for name in kept}) for point, parts in sides]
    elif set(moved) <= set(mirrors):
        commits = made.inner = open_commits(settings, stage, window, place)
        made.name, made.title, made.absent, made.notes = "commits", "commits", commits.absent, commits.notes
        made.points = [structs.replace(point, parts={**fixed, **point.parts}) for point in commits.points]
    else:
        from packaging.version import Version

        start, end = sorted((window.old.parts[moved[0]], window.new.parts[moved[0]]), key=Version)
        named = PackageSettings(name=moved[0], start=start, end=end, python=own.python, index=own.index)
        releases = made.inner = open_packages(structs.replace(settings, packages=named), stage, None, place)
        made.title, made.notes = f"releases of {moved[0]}", releases.notes
        made.points = [structs.replace(point, parts={**fixed, **point.parts}) for point in releases.points]
        if start != window.old.parts[moved[0]]:  # it was taken back to an older one
            made.points = made.points[::-1]
    return made
