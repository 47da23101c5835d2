"""Captured cases of two sides: of folders, zips, a store's snapshots, revisions and the work tree.

A tree may hold goldens of every shape; what belongs to a captured case is compared as a bundle, and nothing
of it a second time as a file. A capture directory may lie anywhere in it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager

import msgspec

from karat.bundles import index
from karat.bundles.case_folders import capture_root, case_folders, folders_above
from karat.bundles.cases import Case, cases
from karat.bundles.places import OWN
from karat.compare.change import Change
from karat.diff.case_files import Files, FolderFiles, GatheredPlace, RevisionFiles, WorkTreeFiles
from karat.diff.git_extents import Elsewhere
from karat.diff.sides import Bundles, Listing, Revision, Side, below
from karat.findings import Finding, Severity
from karat.store.words import open_word
from karat.tensors.tensor import Extent


class Captured(msgspec.Struct, frozen=True):
    """The cases of one side."""

    cases: Mapping[str, Case] = {}
    """By the folder they lie in, or by their own path where the other side has no folders."""
    folders: frozenset[str] = frozenset()
    """Every folder that is a case, also of those that need no look."""
    findings: tuple[Finding, ...] = ()
    """About the place, not about one case."""
    out_of_reach: Mapping[str, Finding] = {}
    """Cases of which something is named and not here; what one side cannot show is no news of the other."""


class Pair(msgspec.Struct, frozen=True):
    """One case's two sides; None where a side does not have it."""

    path: str
    old: Case | None
    new: Case | None
    out_of_reach: tuple[Finding, ...] = ()


class Both(msgspec.Struct, frozen=True):
    """The captured cases of two sides."""

    old: Captured
    new: Captured
    unchanged: tuple[str, ...] = ()
    """Cases that git knows to be the same on both sides."""

    def owner(self) -> Callable[[str], bool]:
        """Says whether a file is part of a case on either side, or of the bookkeeping beside cases."""
        folders = self.old.folders | self.new.folders
        starts = {f"{root}/" if root else "" for root in map(capture_root, folders)}
        own = tuple(f"{start}{OWN}" for start in starts)
        indexes = {f"{start}{index.NAME}" for start in starts}

        def owns(path: str) -> bool:
            inside = any(above in folders for above in folders_above(path))
            return inside or path in indexes or path.startswith(own)

        return owns

    def pairs(self) -> list[Pair]:
        """The cases, paired by path."""
        old, new = self.old.cases, self.new.cases
        lost = [self.old.out_of_reach, self.new.out_of_reach]
        return [
            Pair(path, old.get(path), new.get(path), tuple(s[path] for s in lost if path in s))
            for path in sorted({*old, *new}.union(*lost))
        ]

    def findings(self, changes: Sequence[Change], others: Sequence[object]) -> Iterator[Finding]:
        """What is wrong with the places, and whether the two have nothing in common."""
        yield from self.old.findings
        yield from self.new.findings
        shared = self.old.cases.keys() & self.new.cases.keys()
        nothing = changes and not others and not self.unchanged and not shared
        if self.old.cases and self.new.cases and nothing:
            yield Finding(
                kind="nothing-compared",
                severity=Severity.FAIL,
                message=f"the two sides share no case ({changes[0].path}, …), so nothing was compared; do both begin at the same folder?",
                next="karat diff --help",
            )


@contextmanager
def both(
    old: Side, new: Side, listing: Listing | None, *, store: str | None, everything: bool = False
) -> Iterator[Both]:
    """The cases of two sides, as long as their places are open."""
    with ExitStack() as stack:
        if listing is not None:
            yield _of_one_repository(old, new, listing, stack, everything=everything)
            return
        flat = isinstance(old, Bundles) or isinstance(new, Bundles)
        left = _captured(old, new, store, stack, flat=flat)
        right = _captured(new, old, store, stack, flat=flat)
        yield _one_each(left, right) or Both(left, right)


def _one_each(old: Captured, new: Captured) -> Both | None:
    """Two folders that are a case each are meant for one another, whatever they are called."""
    before, after = ([*side.cases.values()] for side in (old, new))
    if not (len(before) == len(after) == 1 and before[0].folder == after[0].folder == ""):
        return None
    path = after[0].path or before[0].path
    left = msgspec.structs.replace(old, cases={path: before[0]})
    return Both(left, msgspec.structs.replace(new, cases={path: after[0]}))


def _captured(
    side: Side, other: Side, store: str | None, stack: ExitStack, *, flat: bool
) -> Captured:
    """All cases of a side."""
    if isinstance(side, Bundles):
        place = stack.enter_context(closing(open_word(side.word, store=store)))
        return Captured(_by_path(cases(place), "", flat=True), findings=place.findings())
    files: Files
    if isinstance(side, Revision):
        files = RevisionFiles(side.root, side.commit, below(side, other))
    else:
        files = FolderFiles(side.root, side.name)
    stack.enter_context(closing(files))
    folders = case_folders(files.paths(), files.head)
    return _gathered(files, folders, folders, flat=flat)


def _of_one_repository(
    old: Side, new: Side, listing: Listing, stack: ExitStack, *, everything: bool
) -> Both:
    """The cases that git says were touched; the others are the same, byte by byte."""
    changes, _ = listing
    before, after = (_git_files(side, listing) for side in (old, new))
    stack.enter_context(closing(before))
    stack.enter_context(closing(after))
    left, right = (case_folders(files.paths(), files.head) for files in (before, after))
    touched = left | right
    if not everything:
        above = {folder for change in changes for folder in folders_above(change.path)}
        touched &= above
    return Both(
        _gathered(before, left, left & touched),
        _gathered(after, right, right & touched),
        tuple(sorted((left | right) - touched)),
    )


def _git_files(side: Side, listing: Listing) -> Files:
    if isinstance(side, Revision):
        return RevisionFiles(side.root, side.commit)
    changes, tree = listing
    there = {change.path for change in changes if change.new_in_worktree}
    gone = {change.path for change in changes} - there
    return WorkTreeFiles(side.root, (tree.keys() | there) - gone)


def _gathered(
    files: Files, folders: frozenset[str], wanted: frozenset[str], *, flat: bool = False
) -> Captured:
    """The wanted cases, each held against the capture directory that it lies in."""
    extents, findings = files.gathered(wanted)
    roots: dict[str, dict[str, Extent]] = {}
    lost: dict[str, Finding] = {}
    for folder, files_of_it in _by_folder(extents, wanted).items():
        root = capture_root(folder)
        start = len(root) + 1 if root else 0
        away = next((e for e in files_of_it.values() if isinstance(e, Elsewhere)), None)
        if away is not None:
            lost[folder[start:] if flat else folder] = _elsewhere(away)
        else:
            inside = roots.setdefault(root, {})
            inside |= {path[start:]: extent for path, extent in files_of_it.items()}
    found: dict[str, Case] = {}
    for root, inside in sorted(roots.items()):
        found |= _by_path(cases(GatheredPlace(root, inside)), root, flat=flat, taken=found)
    return Captured(found, folders, tuple(findings), lost)


def _by_folder(
    extents: Mapping[str, Extent], folders: frozenset[str]
) -> dict[str, dict[str, Extent]]:
    found: dict[str, dict[str, Extent]] = {}
    for path, extent in sorted(extents.items()):
        folder = next(above for above in folders_above(path) if above in folders)
        found.setdefault(folder, {})[path] = extent
    return found


def _by_path(
    found: Iterable[Case], root: str, *, flat: bool, taken: Mapping[str, Case] | None = None
) -> dict[str, Case]:
    """Cases by their own path; one that claims another's path goes by its folder, and is not lost."""
    below_root: Callable[[str], str] = lambda path: f"{root}/{path}" if root else path  # noqa: E731
    by_path: dict[str, Case] = {}
    for case in found:
        path = case.path if flat else below_root(case.path)
        known = path in by_path or path in (taken or {})
        by_path[below_root(case.folder) if known else path] = case
    return by_path


def _elsewhere(extent: Elsewhere) -> Finding:
    return Finding(
        kind="cannot-read",
        severity=Severity.FAIL,
        message=str(extent.why),
        next=extent.why.next_command,
    )


__all__ = ["Both", "Captured", "Pair", "both"]
