"""Folders of zips, as `karat pack` leaves one per case: together they are one place."""

from __future__ import annotations

import os
import shlex
from collections.abc import Mapping
from pathlib import Path
from posixpath import dirname
from typing import Literal

from karat.bundles import index
from karat.bundles.places import OWN, Place, open_place
from karat.findings import Finding, UsageError
from karat.tensors.tensor import Damaged, Extent

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
