"""Layout: which files of a folder or bucket make up which artifact.

Every `.zip` is an artifact of its own, under its whole name. All other files belong to the folder
directly below the root in which they lie, as `gh run download` lays artifacts out; files in the root
itself make up the artifact `.`.
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from karat.sources.listing import Artifact

ROOT = "."


class Entry(msgspec.Struct, frozen=True, kw_only=True):
    """One file below the root."""

    name: str
    """Relative to the root, with `/`."""
    size: int = 0
    modified: float | None = None
    tag: str | None = None
    """What tells two contents of one name apart, where the store knows it."""
    trouble: str | None = None
    """Why it cannot be taken, if it were wanted."""


class Group(msgspec.Struct, frozen=True, kw_only=True):
    """The files of one artifact."""

    name: str
    packed: bool
    """One zip archive, rather than loose files."""
    entries: tuple[Entry, ...]

    @property
    def id(self) -> str:
        """Unlike the name, unique: a bucket may hold `x.zip` and `x.zip/y`."""
        return self.name if self.packed else f"{self.name}/"

    def member(self, entry: Entry) -> str:
        """A loose file's name within the artifact."""
        return entry.name if self.name == ROOT else entry.name.removeprefix(f"{self.name}/")

    def artifact(self) -> Artifact:
        """The group as a source lists it."""
        times = [entry.modified for entry in self.entries if entry.modified is not None]
        return Artifact(
            id=self.id,
            name=self.name,
            size=sum(entry.size for entry in self.entries),
            created=max(times, default=None),
        )


def is_archive(name: str) -> bool:
    """Whether a file is an artifact of its own."""
    return name.lower().endswith(".zip")


def grouped(entries: Iterable[Entry]) -> tuple[Group, ...]:
    """Entries as artifacts, sorted by name, whatever order they came in."""
    groups: list[Group] = []
    loose: dict[str, list[Entry]] = {}
    for entry in sorted(entries, key=lambda entry: entry.name):
        if is_archive(entry.name):
            groups.append(Group(name=entry.name, packed=True, entries=(entry,)))
        else:
            first, slash, _ = entry.name.partition("/")
            loose.setdefault(first if slash else ROOT, []).append(entry)
    groups += [
        Group(name=name, packed=False, entries=tuple(found)) for name, found in loose.items()
    ]
    return tuple(sorted(groups, key=lambda group: group.id))
