"""Captured cases of a side: those of a folder, a zip or a store's snapshot.

A folder may hold goldens of every shape; what belongs to a captured case is compared as a bundle, and
nothing of it a second time as a file.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager

import msgspec

from karat.bundles import index
from karat.bundles.cases import Case, cases
from karat.bundles.places import OWN, Place
from karat.compare.change import Change
from karat.diff.case_folders import holds_cases
from karat.diff.sides import Bundles, Side
from karat.findings import Finding, Severity
from karat.store.words import open_word


class Captured(msgspec.Struct, frozen=True):
    """The cases of one side, by path."""

    cases: Mapping[str, Case]
    folders: frozenset[str] = frozenset()
    findings: tuple[Finding, ...] = ()
    """About the place, not about one case."""

    def owns(self, path: str) -> bool:
        """Whether a file is part of a case, or of the bookkeeping beside cases."""
        if not self.cases:
            return False
        if path == index.NAME or path.startswith(OWN):
            return True
        return any(part in self.folders for part in _folders(path))


def _folders(path: str) -> Iterator[str]:
    """Every folder that a path lies in, the root as the empty text."""
    yield ""
    for at, char in enumerate(path):
        if char == "/":
            yield path[:at]


class Pair(msgspec.Struct, frozen=True):
    """One case's two sides; None where a side does not have it."""

    path: str
    old: Case | None
    new: Case | None


class Both(msgspec.Struct, frozen=True):
    """The captured cases of two sides."""

    old: Captured
    new: Captured

    def owns(self, path: str) -> bool:
        """Whether a file is part of a case on either side."""
        return self.old.owns(path) or self.new.owns(path)

    def pairs(self) -> list[Pair]:
        """The cases, paired by path."""
        old, new = self.old.cases, self.new.cases
        return [Pair(path, old.get(path), new.get(path)) for path in sorted({*old, *new})]

    def findings(self, changes: Sequence[Change], others: Sequence[object]) -> Iterator[Finding]:
        """What is wrong with the places, and whether the two have nothing in common."""
        yield from self.old.findings
        yield from self.new.findings
        shared = self.old.cases.keys() & self.new.cases.keys()
        if self.old.cases and self.new.cases and not shared and changes and not others:
            yield Finding(
                kind="nothing-compared",
                severity=Severity.FAIL,
                message=f"the two sides share no case ({changes[0].path}, …), so nothing was compared",
                next="karat diff --help",
            )


@contextmanager
def both(old: Side, new: Side, store: str | None) -> Iterator[Both]:
    """The cases of two sides, as long as their places are open."""
    with captured(old, store) as left, captured(new, store) as right:
        yield Both(left, right)


@contextmanager
def captured(side: Side, store: str | None) -> Iterator[Captured]:
    """The cases of a side, as long as its place is open; none for what cannot hold any."""
    if not holds_cases(side):
        yield Captured({})
        return
    place = open_word(side.word if isinstance(side, Bundles) else str(side.root), store=store)
    try:
        found = _by_path(cases(place))
        folders = frozenset(case.folder for case in found.values())
        yield Captured(found, folders, _relevant(place, folders))
    finally:
        place.close()


def _by_path(found: Iterable[Case]) -> dict[str, Case]:
    """Cases by their own path; one that claims another's path goes by its folder, and is not lost."""
    by_path: dict[str, Case] = {}
    for case in found:
        by_path[case.folder if case.path in by_path else case.path] = case
    return by_path


def _relevant(place: Place, folders: frozenset[str]) -> tuple[Finding, ...]:
    """A folder's oddities count where cases lie; elsewhere other goldens are, with rules of their own."""
    if place.kind != "folder":
        return place.findings()
    return tuple(
        finding
        for finding in place.findings()
        if any(part in folders for part in _folders(finding.path))
    )
