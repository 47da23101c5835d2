"""Folders of cases: plain files are listed and read, everything else is a finding and never opened."""

from __future__ import annotations

import os
import shlex
import unicodedata
from collections.abc import Mapping
from pathlib import Path
from posixpath import dirname
from typing import Literal

from karat.bundles import index
from karat.bundles.extents import FileExtent, read_all
from karat.bundles.places import OWN, Place, open_place
from karat.findings import Finding, Severity, UsageError
from karat.system.archives import folded, shown
from karat.tensors.tensor import Damaged, Extent

_DEEPEST = 32


class FolderPlace:
    """A folder, as it was when it was opened."""

    kind: Literal["folder", "zip", "store"] = "folder"

    def __init__(self, path: Path, name: str) -> None:
        self.name = name
        self._path = path
        self._findings: list[Finding] = []
        found: dict[str, int] = {}
        self._walk(path, "", found, 0)
        self._files = dict(sorted(found.items()))
        self._check_names()

    def files(self) -> Mapping[str, int]:
        return self._files

    def extent(self, path: str) -> FileExtent:
        size = self._files.get(path)
        if size is None:
            raise Damaged(f"{path}: expected in {self.name}, found nothing")
        return FileExtent(path=self._path / path, start=0, size=size, file_size=size, name=path)

    def read(self, path: str, limit: int = 64 << 20) -> bytes:
        return read_all(self.extent(path), limit, path)

    def findings(self) -> tuple[Finding, ...]:
        return tuple(self._findings)

    def close(self) -> None:
        """Nothing is held open."""

    def _walk(self, folder: Path, prefix: str, found: dict[str, int], depth: int) -> None:
        with os.scandir(folder) as entries:
            for entry in entries:
                if not prefix and entry.name.startswith(OWN):
                    continue
                path = f"{prefix}{entry.name}"
                try:
                    self._take(entry, path, found, depth)
                except OSError as error:
                    self._tell("cannot-read", path, f"found: {error.strerror or error}")

    def _take(self, entry: os.DirEntry[str], path: str, found: dict[str, int], depth: int) -> None:
        if any(unicodedata.category(char) in {"Cc", "Cs"} for char in entry.name):
            said = f"found {shown(path)}, with characters that no case has"
            self._tell("unexpected-file", shown(path), said)
        elif entry.is_symlink():
            self._tell("unexpected-file", path, "found a symbolic link, which is not followed")
        elif entry.is_file(follow_symlinks=False):
            found[path] = entry.stat(follow_symlinks=False).st_size
        elif not entry.is_dir(follow_symlinks=False):
            self._tell("unexpected-file", path, "found a device, pipe or socket")
        elif depth >= _DEEPEST:
            self._tell("unexpected-file", path, f"found folders more than {_DEEPEST} deep")
        else:
            self._walk(Path(entry.path), f"{path}/", found, depth + 1)

    def _check_names(self) -> None:
        seen: dict[str, str] = {}
        for path in self._files:
            other = seen.setdefault(folded(path), path)
            if other != path:
                said = f"found it beside {other}, and not every file system tells them apart"
                self._tell("unexpected-file", path, said)

    def _tell(self, kind: str, path: str, found: str) -> None:
        self._findings.append(
            Finding(
                kind=kind,
                severity=Severity.FAIL,
                message=f"{path}: expected a plain file; {found}",
                path=path,
                next=f"ls -l {shlex.quote(self.name)}",
            )
        )


# DOC-HERE zips_place: Folders of zips, as `karat pack` leaves one per case: together they are one place.

SUMS = "SHA256SUMS"
"""What `karat pack` writes beside its zips."""


class ZipsPlace:
    """Zips whose cases are told apart by their paths; each zip's index is its own business."""

    kind: Literal["folder", "zip", "store"] = "zip"

    def __init__(self, name: str, zips: Mapping[str, Place]) -> None:
        self.name = name
        self._zips = zips
        held: dict[str, str] = {}
        for inside, place in zips.items():
            for path in place.files():
                if path != index.NAME and held.setdefault(path, inside) != inside:
                    raise _twice(name, path, held[path], inside)
        self._held = dict(sorted(held.items()))

    def files(self) -> Mapping[str, int]:
        return {path: self._zips[inside].files()[path] for path, inside in self._held.items()}

    def extent(self, path: str) -> Extent:
        return self._holding(path).extent(path)

    def read(self, path: str, limit: int = 64 << 20) -> bytes:
        return self._holding(path).read(path, limit)

    def findings(self) -> tuple[Finding, ...]:
        return tuple(finding for place in self._zips.values() for finding in place.findings())

    def close(self) -> None:
        for place in self._zips.values():
            place.close()

    def _holding(self, path: str) -> Place:
        if path not in self._held:
            raise Damaged(f"{path}: expected in {self.name}, found nothing")
        return self._zips[self._held[path]]


def _twice(name: str, path: str, one: str, other: str) -> UsageError:
    return UsageError(
        f"{name}: expected each case in one zip, found {dirname(path)} in {one} and in {other}; give one of them",
        next_command=f"ls -l {shlex.quote(name)}",
    )


def is_of_zips(folder: Path) -> bool:
    """Whether there are zips in a folder and no file of another kind; the first that is decides."""
    found = False
    for _, folders, files in os.walk(folder):
        folders.sort()
        if any(not file.endswith(".zip") and file != SUMS for file in files):
            return False
        found = found or any(file != SUMS for file in files)
    return found


def open_zips(folder: Path, name: str) -> Place:
    """The zips of a folder as one place; of a whole pack the zip of all cases, which has the others' bytes."""
    found = (path.relative_to(folder) for path in folder.rglob("*.zip") if path.is_file())
    zips = sorted(path for path in found if not path.parts[0].startswith(OWN))
    whole = [path for path in zips if len(path.parts) == 1]
    if len(whole) == 1 and (folder / SUMS).is_file():
        return open_place(Path(name, whole[0]))
    return ZipsPlace(name, {path.as_posix(): open_place(Path(name, path)) for path in zips})
