"""Places: where captured cases are, and what every kind of place can do.

A place lists files by their path and hands out their bytes; it judges nothing and writes nothing. Folders are in
`folders`, zips in `zip_file`, snapshots in `karat.store`.
"""

from __future__ import annotations

import stat
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path, PurePath
from typing import TYPE_CHECKING, Literal, Protocol

from karat.bundles.extents import FETCH, LONGEST, PartExtent, not_fetched, pointer, read_all
from karat.bundles.layout import HEAD, MANIFEST, capture_root, case_folders
from karat.findings import CannotVerify, Finding, KaratError, UsageError, fail
from karat.system.command import Command
from karat.tensors.tensor import Damaged, Extent

if TYPE_CHECKING:
    from karat.system.archives import Limits

_SHOWN = 5


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
        """Close all files."""
        return


class BadPlace(KaratError):  # noqa: N818 - a state of the bytes
    """The bundle exists and is not sound (exit 1); `finding` says so in a report."""

    def __init__(self, kind: str, message: str, *, name: str, next_command: str) -> None:
        super().__init__(message, next_command=next_command)
        self.finding = fail(kind, message, path=name, next=next_command)


def open_place(word: str | Path, *, limits: Limits | None = None) -> Place:
    """A folder of one case or of many, or a zip.

    `BadPlace` for a zip that is damaged or none, UsageError for what is not there, CannotVerify for what
    cannot be read. A store's words are for `karat.store.place.open_word`.
    """
    from karat.bundles.folders import FolderPlace
    from karat.bundles.zip_file import ZipPlace

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


def deeper_roots(place: Place) -> tuple[str, ...]:
    """The capture directories inside a folder that is none itself."""
    files = place.files()
    deep = any(path.endswith(MANIFEST) and path.count("/") > 3 for path in files)
    if place.kind != "folder" or not deep:
        return ()
    roots = {capture_root(folder) for folder in case_folders(files, lambda path: _head(place, path))}
    return tuple(sorted(roots)) if "" not in roots else ()


def require_root(place: Place, command: Callable[[Sequence[str]], Sequence[str]]) -> None:
    """UsageError if capture directories begin further down; `command` gives what to run instead."""
    roots = [str(PurePath(place.name, root)) for root in deeper_roots(place)]
    if roots:
        more = ", …" if len(roots) > _SHOWN else ""
        raise UsageError(
            f"{place.name}: expected a capture directory, found one further down, at {', '.join(roots[:_SHOWN])}{more}",
            next_command=str(Command(*command(roots))),
        )


def _head(place: Place, path: str) -> bytes:
    """The first bytes of a file; none if it cannot be read, which is reported when it is."""
    try:
        whole = place.extent(path)
        return read_all(PartExtent(whole=whole, start=0, size=min(HEAD, whole.size), name=path))
    except (CannotVerify, Damaged):
        return b""
