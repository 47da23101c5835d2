"""Captured cases of two sides: of folders, zips, a store's snapshots, revisions and the work tree.

A tree may hold goldens of every shape; what belongs to a captured case is compared as a bundle, and nothing of it a
second time as a file. A capture directory may lie anywhere in it. A Git LFS pointer stands for the file that it
points to.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager
from functools import cached_property
from pathlib import Path
from typing import Literal, Protocol

import msgspec

from karat.bundles import index
from karat.bundles.cases import Case, cases
from karat.bundles.extents import PartExtent, read_all
from karat.bundles.folders import FolderPlace
from karat.bundles.layout import HEAD, OWN, capture_root, case_folders, folders_above
from karat.bundles.places import Place
from karat.compare.change import Change
from karat.diffs.git_blobs import BlobExtent, Elsewhere, Objects, absent_blob, fetched_objects, pointed_to
from karat.diffs.sides import Bundles, Listing, Revision, Side, below
from karat.findings import CannotVerify, Finding, fail
from karat.store.place import open_word
from karat.system import git
from karat.tensors.tensor import Damaged, Extent


class Captured(msgspec.Struct, frozen=True):
    """The cases of one side."""

    cases: Mapping[str, Case] = {}
    """By the folder they lie in, or by their own path where the other side has no folders."""
    folders: frozenset[str] = frozenset()  # Every folder that is a case, also of those that need no look.
    findings: tuple[Finding, ...] = ()  # About the place, not about one case.
    out_of_reach: Mapping[str, Finding] = {}
    """Cases of which something is named and not here; what one side cannot show is no news of the other."""


class CasePair(msgspec.Struct, frozen=True):
    """One case's two sides; None where a side does not have it."""

    path: str
    old: Case | None
    new: Case | None
    out_of_reach: tuple[Finding, ...] = ()


class BothSides(msgspec.Struct, frozen=True):
    """The captured cases of two sides."""

    old: Captured
    new: Captured
    unchanged: tuple[str, ...] = ()  # Cases that git knows to be the same on both sides.

    def owner(self) -> Callable[[str], bool]:
        """Says whether a file is part of a case on either side, or of the bookkeeping beside cases."""
        folders = self.old.folders | self.new.folders
        starts = {f"{root}/" if root else "" for root in map(capture_root, folders)}
        own = tuple(f"{start}{OWN}" for start in starts)
        indexes = {f"{start}{index.NAME}" for start in starts}

        def owns(path: str) -> bool:
            return _inside(path, folders) or path in indexes or path.startswith(own)

        return owns

    def pairs(self) -> list[CasePair]:
        """The cases, paired by path."""
        old, new = self.old.cases, self.new.cases
        lost = [self.old.out_of_reach, self.new.out_of_reach]
        return [
            CasePair(path, old.get(path), new.get(path), tuple(s[path] for s in lost if path in s))
            for path in sorted({*old, *new}.union(*lost))
        ]

    def findings(self, changes: Sequence[Change], others: Sequence[object]) -> Iterator[Finding]:
        """What is wrong with the places, and whether the two have nothing in common."""
        yield from self.old.findings
        yield from self.new.findings
        shared = self.old.cases.keys() & self.new.cases.keys()
        nothing = changes and not others and not self.unchanged and not shared
        if self.old.cases and self.new.cases and nothing:
            yield fail(
                "nothing-compared",
                f"the two sides share no case ({changes[0].path}, …), so nothing was compared; do both begin at the same folder?",
                next="karat diff --help",
            )


@contextmanager
def both(
    old: Side, new: Side, listing: Listing | None, *, store: str | None, everything: bool = False
) -> Iterator[BothSides]:
    """The cases of two sides, as long as their places are open."""
    with ExitStack() as stack:
        if listing is not None:
            yield _of_one_repository(old, new, listing, stack, everything=everything)
            return
        flat = isinstance(old, Bundles) or isinstance(new, Bundles)
        left = _captured(old, new, store, stack, flat=flat)
        right = _captured(new, old, store, stack, flat=flat)
        before, after = ([*side.cases.values()] for side in (left, right))
        if len(before) == len(after) == 1 and before[0].folder == after[0].folder == "":
            # Two folders that are a case each are meant for one another, whatever they are called.
            path = after[0].path or before[0].path
            left = msgspec.structs.replace(left, cases={path: before[0]})
            right = msgspec.structs.replace(right, cases={path: after[0]})
        yield BothSides(left, right)


def _captured(side: Side, other: Side, store: str | None, stack: ExitStack, *, flat: bool) -> Captured:
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


def _of_one_repository(old: Side, new: Side, listing: Listing, stack: ExitStack, *, everything: bool) -> BothSides:
    """The cases that git says were touched; the others are the same, byte by byte."""
    before, after = (stack.enter_context(closing(_git_files(side, listing))) for side in (old, new))
    left, right = (case_folders(files.paths(), files.head) for files in (before, after))
    touched = left | right
    if not everything:
        touched &= {folder for change in listing[0] for folder in folders_above(change.path)}
    return BothSides(
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


def _gathered(files: Files, folders: frozenset[str], wanted: frozenset[str], *, flat: bool = False) -> Captured:
    """The wanted cases, each held against the capture directory that it lies in."""
    extents, findings = files.gathered(wanted)
    roots: dict[str, dict[str, Extent]] = {}
    lost: dict[str, Finding] = {}
    by_folder: dict[str, dict[str, Extent]] = {}
    for path, extent in sorted(extents.items()):
        folder = next(above for above in folders_above(path) if above in wanted)
        by_folder.setdefault(folder, {})[path] = extent
    for folder, files_of_it in by_folder.items():
        root = capture_root(folder)
        start = len(root) + 1 if root else 0
        away = next((e for e in files_of_it.values() if isinstance(e, Elsewhere)), None)
        if away is not None:
            lost[folder[start:] if flat else folder] = fail("cannot-read", str(away.why), next=away.why.next_command)
        else:
            inside = roots.setdefault(root, {})
            inside |= {path[start:]: extent for path, extent in files_of_it.items()}
    found: dict[str, Case] = {}
    for root, inside in sorted(roots.items()):
        found |= _by_path(cases(GatheredPlace(root, inside)), root, flat=flat, taken=found)
    return Captured(found, folders, tuple(findings), lost)


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


Gathered = tuple[dict[str, Extent], list[Finding]]


class Files(Protocol):
    """Files of a side."""

    def paths(self) -> Collection[str]:
        """All of them."""

    def head(self, path: str) -> bytes:
        """The first bytes of one; none if it cannot be read, which whoever reads it will say."""

    def gathered(self, folders: frozenset[str]) -> Gathered:
        """Every file in these folders, and what is wrong there."""

    def close(self) -> None:
        """Lets go of what is held open."""
        return


class FolderFiles(Files):
    """Any folder."""

    def __init__(self, root: Path, name: str) -> None:
        self._place = FolderPlace(root, name)

    def paths(self) -> Collection[str]:
        return self._place.files()

    def head(self, path: str) -> bytes:
        return _head(self._extent(path))

    def gathered(self, folders: frozenset[str]) -> Gathered:
        files = {p: self._extent(p) for p in self._place.files() if _inside(p, folders)}
        return files, [f for f in self._place.findings() if _inside(f.path, folders)]

    def _extent(self, path: str) -> Extent:
        return _followed(self._place.extent(path), path, lambda: None)


class RevisionFiles(Files):
    """A commit or tree; with a prefix, one folder of it."""

    def __init__(self, root: Path, commit: str, prefix: str = "") -> None:
        self._objects = Objects(root)
        found: dict[str, tuple[str, int | None]] = {}
        for entry in git.run_git(root, "ls-tree", "-r", "-z", "-l", "--full-tree", commit).split(b"\0"):
            meta, _, raw = entry.partition(b"\t")
            path = os.fsdecode(raw)
            mode, kind, *rest = meta.split() or [b"", b""]
            if kind == b"blob" and mode != b"120000" and path.startswith(prefix):
                oid, size = rest
                found[path[len(prefix) :]] = oid.decode(), int(size) if size.isdigit() else None
        self._sized = found

    def paths(self) -> Collection[str]:
        return self._sized

    def head(self, path: str) -> bytes:
        return _head(self._extent(path))

    def gathered(self, folders: frozenset[str]) -> Gathered:
        return {path: self._extent(path) for path in self._sized if _inside(path, folders)}, []

    def close(self) -> None:
        self._objects.close()

    @cached_property
    def _fetched(self) -> Path:
        return fetched_objects(self._objects.root)

    def _extent(self, path: str) -> Extent:
        oid, size = self._sized[path]
        if size is None:
            return absent_blob(oid, path)
        blob = BlobExtent(objects=self._objects, oid=oid, size=size, name=path)
        return _followed(blob, path, lambda: self._fetched)


class WorkTreeFiles(Files):
    """A work tree: what git knows or would add says which cases there are, the disk what is in them."""

    def __init__(self, root: Path, paths: Collection[str]) -> None:
        self._root, self._paths = root, paths

    def paths(self) -> Collection[str]:
        return self._paths

    def head(self, path: str) -> bytes:
        try:
            with (self._root / path).open("rb") as file:
                return file.read(HEAD)
        except OSError:
            return b""

    def gathered(self, folders: frozenset[str]) -> Gathered:
        files: dict[str, Extent] = {}
        findings: list[Finding] = []
        for folder in sorted(folders):
            place = FolderPlace(self._root / folder, folder)
            for name in place.files():
                path = f"{folder}/{name}" if folder else name
                files[path] = _followed(place.extent(name), path, lambda: self._fetched)
            findings += place.findings()
        return files, findings

    @cached_property
    def _fetched(self) -> Path:
        return fetched_objects(self._root)


class GatheredPlace(Place):
    """Files from wherever they lie, as a place of captured cases."""

    kind: Literal["folder", "zip", "store"] = "folder"

    def __init__(self, name: str, extents: Mapping[str, Extent]) -> None:
        self.name = name
        self._extents = dict(sorted(extents.items()))

    def files(self) -> Mapping[str, int]:
        return {path: extent.size for path, extent in self._extents.items()}

    def extent(self, path: str) -> Extent:
        if path not in self._extents:
            raise Damaged(f"{path}: expected in {self.name}, found nothing")
        return self._extents[path]


def _inside(path: str, folders: frozenset[str]) -> bool:
    return any(folder in folders for folder in folders_above(path))


def _head(extent: Extent) -> bytes:
    try:
        return read_all(PartExtent(whole=extent, start=0, size=min(extent.size, HEAD), name="head"))
    except (CannotVerify, Damaged):
        return b""


def _followed(extent: Extent, path: str, fetched: Callable[[], Path | None]) -> Extent:
    """What a pointer stands for; what cannot be read stays, and is told by whoever needs it."""
    if isinstance(extent, Elsewhere):
        return extent
    try:
        return pointed_to(extent, path, fetched)
    except (CannotVerify, Damaged):
        return extent
