"""Folders of cases: plain files are listed and read, everything else is a finding and never opened."""

from __future__ import annotations

import os
import shlex
import unicodedata
from collections.abc import Mapping
from pathlib import Path
from typing import Literal

from karat.bundles.extents import FileExtent, read_all
from karat.bundles.places import OWN
from karat.findings import Finding, Severity
from karat.sources.archive import folded, shown
from karat.tensors.tensor import Damaged

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
