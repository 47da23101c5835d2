"""Folders as places: of cases, or of zips. Only plain files are read; everything else is a finding."""

from __future__ import annotations

import os
import unicodedata
from collections.abc import Mapping
from pathlib import Path
from posixpath import dirname
from typing import Literal

from karat.bundles import index
from karat.bundles.extents import FileExtent
from karat.bundles.layout import OWN, SUMS
from karat.bundles.places import Place, open_place
from karat.findings import Finding, UsageError, fail
from karat.system.command import Command
from karat.system.names import folded, shown
from karat.tensors.tensor import Damaged, Extent

_DEEPEST = 32


class FolderPlace(Place):
    """A folder, as it was when it was opened."""

    kind: Literal["folder", "zip", "store"] = "folder"

    def __init__(self, path: Path, name: str) -> None:
        self.name, self._path = name, path
        self._findings: list[Finding] = []
        found: dict[str, int] = {}
        self._walk(path, "", found, 0)
        self._files = dict(sorted(found.items()))
        seen: dict[str, str] = {}
        for file in self._files:
            other = seen.setdefault(folded(file), file)
            if other != file:
                beside = f"found it beside {other}, which some file systems take for the same"
                self._report("unexpected-file", file, beside)

    def files(self) -> Mapping[str, int]:
        return self._files

    def extent(self, path: str) -> FileExtent:
        size = self._files.get(path)
        if size is None:
            raise Damaged(f"{path}: expected in {self.name}, found nothing")
        return FileExtent(path=self._path / path, start=0, size=size, file_size=size, name=path)

    def findings(self) -> tuple[Finding, ...]:
        return tuple(self._findings)

    def _walk(self, folder: Path, prefix: str, found: dict[str, int], depth: int) -> None:
        with os.scandir(folder) as entries:
            for entry in entries:
                if not prefix and entry.name.startswith(OWN):
                    continue
                path = f"{prefix}{entry.name}"
                try:
                    if any(unicodedata.category(char) in {"Cc", "Cs"} for char in entry.name):
                        found_name = f"found {shown(path)}, with characters that no case has"
                        self._report("unexpected-file", shown(path), found_name)
                    elif entry.is_symlink():
                        self._report("unexpected-file", path, "found a symbolic link, which is not followed")
                    elif entry.is_file(follow_symlinks=False):
                        found[path] = entry.stat(follow_symlinks=False).st_size
                    elif not entry.is_dir(follow_symlinks=False):
                        self._report("unexpected-file", path, "found a device, pipe or socket")
                    elif depth >= _DEEPEST:
                        self._report("unexpected-file", path, f"found folders more than {_DEEPEST} deep")
                    else:
                        self._walk(Path(entry.path), f"{path}/", found, depth + 1)
                except OSError as error:
                    self._report("cannot-read", path, f"found: {error.strerror or error}")

    def _report(self, kind: str, path: str, found: str) -> None:
        look = str(Command("ls", "-l", self.name))
        self._findings.append(fail(kind, f"{path}: expected a plain file; {found}", path=path, next=look))


class ZipsPlace(Place):
    """Several zips, as `karat pack` leaves one per case, as one place; each zip's index is its own."""

    kind: Literal["folder", "zip", "store"] = "zip"

    def __init__(self, name: str, zips: Mapping[str, Place]) -> None:
        self.name, self._zips = name, zips
        held: dict[str, str] = {}
        for inside, place in zips.items():
            for path in place.files():
                if path != index.NAME and held.setdefault(path, inside) != inside:
                    twice = f"found {dirname(path)} in {held[path]} and in {inside}; give one of them"
                    said = f"{name}: expected each case in one zip, {twice}"
                    raise UsageError(said, next_command=Command("ls", "-l", name))
        self._held = dict(sorted(held.items()))

    def files(self) -> Mapping[str, int]:
        return {path: self._zips[inside].files()[path] for path, inside in self._held.items()}

    def extent(self, path: str) -> Extent:
        if path not in self._held:
            raise Damaged(f"{path}: expected in {self.name}, found nothing")
        return self._zips[self._held[path]].extent(path)

    def findings(self) -> tuple[Finding, ...]:
        return tuple(finding for place in self._zips.values() for finding in place.findings())

    def close(self) -> None:
        for place in self._zips.values():
            place.close()


def open_zips(folder: Path, name: str) -> Place:
    """The zips of a folder as one place; of a whole pack, the zip of all cases."""
    found = (path.relative_to(folder) for path in folder.rglob("*.zip") if path.is_file())
    zips = sorted(path for path in found if not path.parts[0].startswith(OWN))
    whole = [path for path in zips if len(path.parts) == 1]
    if len(whole) == 1 and (folder / SUMS).is_file():
        return open_place(Path(name, whole[0]))
    return ZipsPlace(name, {path.as_posix(): open_place(Path(name, path)) for path in zips})
