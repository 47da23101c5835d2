"""Captured cases of two sides: of folders, zips, a store's snapshots, revisions and the work tree.

A tree may hold goldens of every shape; what belongs to a captured case is compared as a bundle, and nothing of it a
second time as a file. A capture directory may lie anywhere in it. A Git LFS pointer stands for the file that it
points to.
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from typing import IO, ClassVar, Literal, cast

import msgspec

from karat.bundles import index
from karat.bundles.cases import Case, cases
from karat.bundles.extents import LONGEST, FileExtent, not_fetched, pointer, read_all
from karat.bundles.layout import HEAD, OWN, capture_root, case_folders, folders_above
from karat.bundles.places import FolderPlace, Place
from karat.compare.change import Change
from karat.diffs.sides import Bundles, Listing, Revision, Side, below
from karat.findings import CannotVerify, Finding, fail
from karat.system import git
from karat.system.foreign.limits import GOLDEN
from karat.tensors.tensor import Damaged, Extent, Reader

_SMALL = 1 << 20


class Captured(msgspec.Struct, frozen=True):
    cases: Mapping[str, Case] = {}
    """By the folder they lie in, or by their own path where the other side has no folders."""
    folders: frozenset[str] = frozenset()  # Every folder that is a case, also of those that need no look.
    findings: tuple[Finding, ...] = ()  # About the place, not about one case.
    out_of_reach: Mapping[str, Finding] = {}
    """Cases of which something is named and not here; what one side cannot show is no news of the other."""


class CasePair(msgspec.Struct, frozen=True):
    path: str
    old: Case | None
    new: Case | None
    out_of_reach: tuple[Finding, ...] = ()


class BothSides(msgspec.Struct, frozen=True):
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
            said = f"the two sides share no case ({changes[0].path}, …), so nothing was compared; do both begin at the same folder?"
            yield fail("nothing-compared", said, next="karat diff --help")


@contextmanager
def both(
    old: Side, new: Side, listing: Listing | None, *, store: str | None, everything: bool = False
) -> Iterator[BothSides]:
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
    if isinstance(side, Bundles):
        from karat.store.place import open_word

        place = stack.enter_context(closing(open_word(side.word, store=store)))
        return Captured(_by_path(cases(place), "", flat=True), findings=place.findings())
    files: Files
    if isinstance(side, Revision):
        files = RevisionFiles(side.root, side.commit, below(side, other))
    else:
        files = FilesOnDisk(side.root, side.name)
    stack.enter_context(closing(files))
    folders = case_folders(files.paths, files.head)
    return _gathered(files, folders, folders, flat=flat)


def _of_one_repository(old: Side, new: Side, listing: Listing, stack: ExitStack, *, everything: bool) -> BothSides:
    """The cases that git says were touched; the others are the same, byte by byte."""
    before, after = (stack.enter_context(closing(_git_files(side, listing))) for side in (old, new))
    left, right = (case_folders(files.paths, files.head) for files in (before, after))
    touched = left | right
    if not everything:
        touched &= {folder for change in listing[0] for folder in folders_above(change.path)}
    gathered = _gathered(before, left, left & touched), _gathered(after, right, right & touched)
    return BothSides(*gathered, tuple(sorted((left | right) - touched)))


def _git_files(side: Side, listing: Listing) -> Files:
    if isinstance(side, Revision):
        return RevisionFiles(side.root, side.commit)
    changes, tree = listing
    there = {change.path for change in changes if change.new_in_worktree}
    gone = {change.path for change in changes} - there
    return FilesOnDisk(side.root, side.name, (tree.keys() | there) - gone, side.root)


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


class RevisionFiles:
    """A commit or tree; with a prefix, one folder of it. What is wanted of it is written to a folder of its own."""

    def __init__(self, root: Path, commit: str, prefix: str = "") -> None:
        self._root, self._blobs = root, git.Blobs(root)
        self._folder = tempfile.TemporaryDirectory(prefix="karat-")
        found: dict[str, tuple[str, int | None]] = {}
        for path, (mode, kind, oid, *_, size) in git.entries(
            git.run_git(root, "ls-tree", "-r", "-z", "-l", "--full-tree", commit)
        ):
            if kind == "blob" and mode != "120000" and path.startswith(prefix):
                found[path[len(prefix) :]] = oid, int(size) if size.isdigit() else None
        self._sized = found
        self.paths: Collection[str] = found

    def head(self, path: str) -> bytes:
        (data,) = self._blobs.read([self._sized[path][0]], GOLDEN.value())
        return data[:HEAD] if isinstance(data, bytes) else b""

    def gathered(self, folders: frozenset[str]) -> Gathered:
        """Every file in these folders, and what is wrong there."""
        return {path: self._extent(path) for path in self._sized if _inside(path, folders)}, []

    def close(self) -> None:
        self._blobs.close()
        self._folder.cleanup()

    def _extent(self, path: str) -> Extent:
        oid, size = self._sized[path]
        file = Path(self._folder.name, oid)  # no name that a stranger chose
        if size is not None and not file.exists():
            (data,) = self._blobs.read([oid], _SMALL)
            with file.open("wb") as out:
                if isinstance(data, bytes):
                    out.write(data)
                else:  # as it comes, whatever its size
                    with git.start_git(self._root, "cat-file", "blob", oid) as process:
                        shutil.copyfileobj(cast("IO[bytes]", process.stdout), out)
        if size is None or file.stat().st_size != size:
            missing = CannotVerify(f"{path}: {git.no_object(oid)}", next_command=git.REFETCH)
            return Elsewhere(size=0, why=missing)
        extent = FileExtent(path=file, start=0, size=size, file_size=size, name=path)
        return _followed(extent, path, self._root)


class FilesOnDisk:
    """A folder; of a work tree, what git knows or would add says which cases there are, the disk what is in them."""

    def __init__(
        self, root: Path, name: str, known: Collection[str] | None = None, repository: Path | None = None
    ) -> None:
        self._root, self._repository = root, repository
        self.paths: Collection[str] = FolderPlace(root, name).files() if known is None else known

    def head(self, path: str) -> bytes:
        return head_on_disk(self._root / path)

    def gathered(self, folders: frozenset[str]) -> Gathered:
        files: dict[str, Extent] = {}
        findings: list[Finding] = []
        for folder in sorted(folders):
            place = FolderPlace(self._root / folder, folder)
            for name in place.files():
                path = f"{folder}/{name}" if folder else name
                files[path] = _followed(place.extent(name), path, self._repository)
            findings += place.findings()
        return files, findings

    def close(self) -> None:
        return


Files = RevisionFiles | FilesOnDisk


def head_on_disk(path: Path) -> bytes:
    """The first bytes of a file; none if it cannot be read."""
    try:
        with path.open("rb") as file:
            return file.read(HEAD)
    except OSError:
        return b""


class GatheredPlace(Place):
    """Files from wherever they lie, as a place of captured cases."""

    kind: Literal["folder", "zip", "store"] = "folder"

    def __init__(self, name: str, extents: Mapping[str, Extent]) -> None:
        self.name = name
        self._extents = dict(sorted(extents.items()))
        self._sizes = {path: extent.size for path, extent in self._extents.items()}

    def files(self) -> Mapping[str, int]:
        return self._sizes

    def extent(self, path: str) -> Extent:
        if path not in self._extents:
            raise Damaged(f"{path}: expected in {self.name}, found nothing")
        return self._extents[path]


def _inside(path: str, folders: frozenset[str]) -> bool:
    return any(folder in folders for folder in folders_above(path))


class Elsewhere(msgspec.Struct, frozen=True, kw_only=True):
    """A file that is not here, only what points to it."""

    size: int
    why: CannotVerify
    seekable: ClassVar[bool] = True

    def open(self) -> Reader:
        raise self.why


def _followed(extent: Extent, path: str, repository: Path | None) -> Extent:
    """What a Git LFS pointer stands for, where it was fetched; what cannot be read stays, and is told by whoever needs it."""
    try:
        found = pointer(read_all(extent, name=path)) if extent.size <= LONGEST else None
    except Damaged:
        return extent
    if found is None:
        return extent
    oid, size = found
    file = repository and git.common_folder(repository) / "lfs" / "objects" / oid[:2] / oid[2:4] / oid
    if file is None or not file.is_file() or file.stat().st_size != size:
        why = CannotVerify(f"{path}: {not_fetched(size)}", next_command="git lfs fetch --all && git lfs checkout")
        return Elsewhere(size=size, why=why)
    return FileExtent(path=file, start=0, size=size, file_size=size, name=path)
