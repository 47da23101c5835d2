"""The part that both git timelines share: points are sets of commits, and can be mixed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from karat.engines.job import Command
from karat.findings import Finding
from karat.hunt.container_engine import remove_named
from karat.hunt.lines import branch_of_merge
from karat.hunt.point import Point, Suspect
from karat.hunt.repositories import Repositories, point_id
from karat.hunt.repository_names import IMAGE
from karat.hunt.suspects import suspects_between


class GitTimeline:
    """Points that are sets of commits, one of each repository."""

    def __init__(
        self,
        name: str,
        repositories: Repositories,
        points: Sequence[Point],
        findings: Sequence[Finding],
        *,
        absent: str = "",
    ) -> None:
        self._name, self._repositories = name, repositories
        self.absent = absent
        """What it means if a coarser stage's change does not show here; empty: nothing that is known beforehand."""
        self._points, self._findings = tuple(points), (*repositories.findings(), *findings)

    @property
    def name(self) -> str:
        """`checkouts` or `commits`."""
        return self._name

    @property
    def points(self) -> Sequence[Point]:
        """Oldest first."""
        return self._points

    @property
    def findings(self) -> Sequence[Finding]:
        """What is odd about the history."""
        return self._findings

    def identity(self, point: Point) -> Mapping[str, str]:
        """Commits, and the container they are built in."""
        commits = self._repositories.commits(point)
        image = {"image": point.parts[IMAGE]} if IMAGE in point.parts else {}
        return {**{f"commit.{name}": commit for name, commit in commits.items()}, **image}

    def prepare(self, point: Point) -> Sequence[Command]:
        """Check out, build."""
        return self._repositories.prepare(point)

    def command(self, point: Point, command: Command) -> Command:
        """In the repository (of several: in the folder that holds them), or there within the container."""
        return self._repositories.command(point, command)

    def ahead(self, points: Sequence[Point]) -> None:
        """Nothing to fetch: the mirrors have every commit."""

    def mixed(self, old: Point, new: Point, taken: frozenset[str]) -> Point | None:
        """The old point with those repositories of the new one."""
        before, after = self._repositories.commits(old), self._repositories.commits(new)
        if before.keys() != after.keys() or not taken <= before.keys():
            return None
        commits = {name: after[name] if name in taken else before[name] for name in before}
        for point in (old, new):
            if commits == self._repositories.commits(point):
                return point
        moved = [name for name in commits if before[name] != after[name]]
        newer = " ".join(name for name in moved if name in taken)
        older = " ".join(name for name in moved if name not in taken)
        return Point(
            id=point_id(commits),
            label=f"new {newer}, old {older}",
            when=new.when,
            parts={**self._repositories.fixed, **commits},
        )

    def suspects(self, old: Point, new: Point) -> Sequence[Suspect]:
        """Every commit between two points, those that cannot be built as well."""
        return suspects_between(self._repositories.mirrors, old, new)

    def finer(self, old: Point, new: Point) -> bool:
        """Whether `commits`, opened between these two, has something to look into: several commits, or a merge."""
        before, after = self._repositories.commits(old), self._repositories.commits(new)
        moved = [name for name in before if before[name] != after.get(name)]
        if self._name == "checkouts" or len(moved) > 1:
            return bool(moved)
        if not moved or not self._repositories.settings.follow_merges:
            return False
        name = moved[0]
        return (
            branch_of_merge(self._repositories.mirrors[name], before[name], after[name]) is not None
        )

    def close(self) -> None:
        """Removes kept containers, those of this machine."""
        if kept := self._repositories.container:
            remove_named(kept.engine, kept.hunt, kept.full_name)
