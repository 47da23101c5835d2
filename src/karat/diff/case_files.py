"""The files of a side in which captured cases may be: a folder's, a revision's, a work tree's.

Each lists paths, lets the first bytes of a manifest be read, and hands out the files of the case folders that
are asked for. A Git LFS pointer stands for the file that it points to.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Mapping
from functools import cached_property
from pathlib import Path
from typing import Literal, Protocol

from karat.bundles.case_folders import HEAD, folders_above
from karat.bundles.extents import read_all
from karat.bundles.folder_place import FolderPlace
from karat.diff.git_extents import (
    BlobExtent,
    Elsewhere,
    Objects,
    absent_blob,
    fetched_objects,
    pointed_to,
)
from karat.findings import CannotVerify, Finding
from karat.goldens import git
from karat.tensors.tensor import Damaged, Extent

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
        """Lets go of everything."""


class FolderFiles:
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

    def close(self) -> None:
        """Nothing is held open."""

    def _extent(self, path: str) -> Extent:
        return _followed(self._place.extent(path), path, lambda: None)


class RevisionFiles:
    """A commit or tree; with a prefix, one folder of it."""

    def __init__(self, root: Path, commit: str, prefix: str = "") -> None:
        self._objects = Objects(root)
        self._sized = _sized_tree(root, commit, prefix)

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


class WorkTreeFiles:
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

    def close(self) -> None:
        """Nothing is held open."""

    @cached_property
    def _fetched(self) -> Path:
        return fetched_objects(self._root)


class GatheredPlace:
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

    def read(self, path: str, limit: int = 64 << 20) -> bytes:
        return read_all(self.extent(path), limit, path)

    def findings(self) -> tuple[Finding, ...]:
        return ()

    def close(self) -> None:
        """Whoever gathered the files lets go of them."""


def _inside(path: str, folders: frozenset[str]) -> bool:
    return any(folder in folders for folder in folders_above(path))


def _head(extent: Extent) -> bytes:
    data = bytearray(min(extent.size, HEAD))
    try:
        reader = extent.open()
        try:
            reader.read_into(0, memoryview(data))
        finally:
            reader.close()
    except (CannotVerify, Damaged):
        return b""
    return bytes(data)


def _followed(extent: Extent, path: str, fetched: Callable[[], Path | None]) -> Extent:
    """What a pointer stands for; what cannot be read stays, and is told by whoever needs it."""
    if isinstance(extent, Elsewhere):
        return extent
    try:
        return pointed_to(extent, path, fetched)
    except (CannotVerify, Damaged):
        return extent


def _sized_tree(root: Path, commit: str, prefix: str) -> dict[str, tuple[str, int | None]]:
    """Every plain file of a revision below the prefix, with its blob and its size; None if git has no such blob."""
    found: dict[str, tuple[str, int | None]] = {}
    for entry in git.run_git(root, "ls-tree", "-r", "-z", "-l", "--full-tree", commit).split(b"\0"):
        meta, _, raw = entry.partition(b"\t")
        path = os.fsdecode(raw)
        mode, kind, *rest = meta.split() or [b"", b""]
        if kind == b"blob" and mode != b"120000" and path.startswith(prefix):
            oid, size = rest
            found[path[len(prefix) :]] = oid.decode(), int(size) if size.isdigit() else None
    return found
