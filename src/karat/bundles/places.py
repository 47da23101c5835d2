"""Places: where captured cases are, what every kind of place can do, and folders as places.

A place lists files by their path and hands out their bytes; it judges nothing and writes nothing. Zips are in `zips`,
snapshots in `karat.store`.
"""

from __future__ import annotations

import os
import stat
import unicodedata
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path, PurePath
from typing import TYPE_CHECKING, Literal, Protocol

from karat.bundles.extents import FETCH, LONGEST, FileExtent, PartExtent, not_fetched, pointer, read_all
from karat.bundles.layout import HEAD, MANIFEST, OWN, capture_root, case_folders
from karat.findings import CannotVerify, Finding, KaratError, UsageError, fail
from karat.system.command import Command
from karat.system.names import folded, shown
from karat.tensors.tensor import Damaged, Extent

if TYPE_CHECKING:
    from karat.system.archives import Limits

_SHOWN = 5
_DEEPEST = 32


class Place(Protocol):
    """Files under `/`-separated names that are safe: no `..`, no links, no two that collide."""

    name: str  # As the user typed it.
    kind: Literal["folder", "zip", "store"]

    def files(self) -> Mapping[str, int]:
        """Path → size, sorted."""

    def extent(self, path: str) -> Extent:
        """The bytes of one file; a read raises `Damaged` if they are not whole."""

    def read(self, path: str, limit: int = 64 << 20) -> bytes:
        """A small file whole; `Damaged` if it is larger than the limit, or not whole."""
        return read_all(self.extent(path), limit, path)

    def findings(self) -> tuple[Finding, ...]:
        """What is wrong with the place itself: a link in a folder, an index that does not fit."""
        return ()

    def close(self) -> None:
        return


class BadPlace(KaratError):  # noqa: N818 - a state of the bytes
    """The bundle exists and is not sound (exit 1); `finding` says so in a report."""

    def __init__(self, kind: str, message: str, *, name: str, next_command: str) -> None:
        super().__init__(message, next_command=next_command)
        self.finding = fail(kind, message, path=name, next=next_command)


class FolderPlace(Place):
    """A folder, as it was when it was opened. Only plain files are read; everything else is a finding."""

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
        return FileExtent(path=f"{self._path}/{path}", start=0, size=size, file_size=size, name=path)

    def findings(self) -> tuple[Finding, ...]:
        return tuple(self._findings)

    def _walk(self, folder: str | Path, prefix: str, found: dict[str, int], depth: int) -> None:
        with os.scandir(folder) as entries:
            for entry in entries:
                if not prefix and entry.name.startswith(OWN):
                    continue
                path = f"{prefix}{entry.name}"
                try:
                    odd = () if entry.name.isprintable() else entry.name
                    if any(unicodedata.category(char) in {"Cc", "Cs"} for char in odd):
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
                        self._walk(entry.path, f"{path}/", found, depth + 1)
                except OSError as error:
                    self._report("cannot-read", path, f"found: {error.strerror or error}")

    def _report(self, kind: str, path: str, found: str) -> None:
        look = str(Command("ls", "-l", self.name))
        self._findings.append(fail(kind, f"{path}: expected a plain file; {found}", path=path, next=look))


def open_place(word: str | Path, *, limits: Limits | None = None) -> Place:
    """A folder of one case or of many, or a zip.

    `BadPlace` for a zip that is damaged or none, UsageError for what is not there, CannotVerify for what
    cannot be read. A store's words are for `karat.store.place.open_word`.
    """
    from karat.bundles.zips import ZipPlace

    path, name = Path(word), str(word)
    try:
        mode = path.stat().st_mode
        if stat.S_ISDIR(mode):
            return FolderPlace(path, name)
        if stat.S_ISREG(mode):
            small = path.stat().st_size <= LONGEST
            if small and (found := pointer(path.read_bytes())) is not None:
                raise CannotVerify(f"{name}: {not_fetched(found[1])}", next_command=FETCH)
            return ZipPlace(path, name, limits)
    except (FileNotFoundError, NotADirectoryError, ValueError):
        said = f"{name}: expected a folder or a zip of captured cases, found nothing there"
        raise UsageError(said, next_command=str(Command("ls", "-l", str(path.parent)))) from None
    except OSError as error:
        said = f"{name}: expected to read a folder or a zip, but: {error.strerror or error}"
        raise CannotVerify(said, next_command=str(Command("ls", "-ld", name))) from None
    said = f"{name}: expected a folder or a zip of captured cases, found a device, pipe or socket"
    raise UsageError(said, next_command=str(Command("ls", "-l", name)))


def open_pack(folder: Path, name: str) -> Place:
    """What `karat pack` left in a folder: the zip of all cases."""
    zips = sorted(path.name for path in folder.glob("*.zip"))
    if len(zips) != 1:
        said = f"{name}: expected one zip of all cases in a folder of zips, found {', '.join(zips[:_SHOWN]) or 'none'}"
        raise UsageError(said, next_command=str(Command("ls", "-l", name)))
    return open_place(Path(name, zips[0]))


def require_root(place: Place, command: Callable[[Sequence[str]], Sequence[str]]) -> None:
    """UsageError if capture directories begin further down; `command` gives what to run instead."""
    files = place.files()
    if place.kind != "folder" or not any(path.endswith(MANIFEST) and path.count("/") > 3 for path in files):
        return
    found = {capture_root(folder) for folder in case_folders(files, lambda path: head(place.extent(path)))}
    if found and "" not in found:
        roots = [str(PurePath(place.name, root)) for root in sorted(found)]
        shown = f"{', '.join(roots[:_SHOWN])}{', …' if len(roots) > _SHOWN else ''}"
        said = f"{place.name}: expected a capture directory, found one further down, at {shown}"
        raise UsageError(said, next_command=str(Command(*command(roots))))


def head(whole: Extent) -> bytes:
    """The first bytes of a file; none if it cannot be read, which is reported when it is."""
    try:
        return read_all(PartExtent(whole=whole, start=0, size=min(HEAD, whole.size), name="head"))
    except (CannotVerify, Damaged):
        return b""
