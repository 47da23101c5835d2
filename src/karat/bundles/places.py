"""Places: where captured cases are, and what every kind of place can do.

A place lists files by their path and hands out their bytes; it judges nothing and writes nothing. Folders
and zips are here, snapshots of a store in `karat.store`. `karat.bundles.cases` finds the cases in one.
"""

from __future__ import annotations

import shlex
import stat
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Literal, Protocol

from karat.findings import CannotVerify, Finding, KaratError, Severity, UsageError
from karat.tensors.tensor import Extent

if TYPE_CHECKING:
    from karat.sources.archive import Limits

OWN = ".karat"
"""What starts with it at the root is a session's own bookkeeping, and nobody else's business."""


class Place(Protocol):
    """Files under `/`-separated names that have been looked at: no `..`, no links, no two that collide."""

    name: str
    """As the user typed it."""
    kind: Literal["folder", "zip", "store"]

    def files(self) -> Mapping[str, int]:
        """Path → size, sorted."""

    def extent(self, path: str) -> Extent:
        """The bytes of one file; a read raises `Damaged` if they are not whole."""

    def read(self, path: str, limit: int = 64 << 20) -> bytes:
        """A small file whole; `Damaged` if it is larger than the limit, or not whole."""

    def findings(self) -> tuple[Finding, ...]:
        """What is wrong with the place itself: a link in a folder, an index that does not fit."""

    def close(self) -> None:
        """Lets go of everything."""


class BadPlace(KaratError):  # noqa: N818 - a state of the bytes
    """What was to be opened is there, and is no sound bundle (exit 1); `finding` says so in a report."""

    def __init__(self, kind: str, message: str, *, name: str, next_command: str) -> None:
        super().__init__(message, next_command=next_command)
        self.finding = Finding(
            kind=kind, severity=Severity.FAIL, message=message, path=name, next=next_command
        )


def open_place(word: str | Path, *, limits: Limits | None = None) -> Place:
    """A folder of one case or of many, or a zip.

    `BadPlace` for a zip that is damaged or none, UsageError for what is not there, CannotVerify for what
    cannot be read. A store's words are for `karat.store.words.open_word`.
    """
    from karat.bundles.folder_place import FolderPlace  # noqa: PLC0415 - it imports this module
    from karat.bundles.zip_place import ZipPlace  # noqa: PLC0415 - as does this one

    path, name = Path(word), str(word)
    try:
        mode = path.stat().st_mode
        if stat.S_ISDIR(mode):
            return FolderPlace(path, name)
        if stat.S_ISREG(mode):
            _require_fetched(path, name)
            return ZipPlace(path, name, limits)
    except (FileNotFoundError, NotADirectoryError, ValueError):
        raise UsageError(
            f"{name}: expected a folder or a zip of captured cases, found nothing there",
            next_command=f"ls -l {shlex.quote(str(path.parent))}",
        ) from None
    except OSError as error:
        raise CannotVerify(
            f"{name}: expected to read a folder or a zip, but: {error.strerror or error}",
            next_command=f"ls -ld {shlex.quote(name)}",
        ) from None
    raise UsageError(
        f"{name}: expected a folder or a zip of captured cases, found a device, pipe or socket",
        next_command=f"ls -l {shlex.quote(name)}",
    )


def _require_fetched(path: Path, name: str) -> None:
    from karat.bundles import lfs_pointers  # noqa: PLC0415 - few files are that small

    if path.stat().st_size <= lfs_pointers.LONGEST:
        found = lfs_pointers.pointer(path.read_bytes())
        if found is not None:
            said = f"{name}: {lfs_pointers.not_fetched(found[1])}"
            raise CannotVerify(said, next_command=lfs_pointers.FETCH)
