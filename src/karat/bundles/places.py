"""Places: where captured cases are, what every kind of place can do, and which of its folders are cases.

A place lists files by their path and hands out their bytes; it judges nothing and writes nothing. Folders are in
`folders`, zips in `zip_file`, snapshots in `karat.store`. Saying that a tree holds no case must be quick, because most
hold none.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from pathlib import Path, PurePath
from typing import TYPE_CHECKING, Literal, Protocol

import msgspec

from karat.bundles.extents import FETCH, LONGEST, PartExtent, not_fetched, pointer, read_all
from karat.findings import CannotVerify, Finding, KaratError, UsageError, fail
from karat.system.command import Command
from karat.tensors.tensor import Damaged, Extent

if TYPE_CHECKING:
    from karat.system.archives import Limits

OWN = ".karat"
"""What starts with it at the root are the records of capture sessions."""
SUMS = "SHA256SUMS"
"""What `karat pack` writes beside its zips."""
MANIFEST = "manifest.json"
TENSORS = ("inputs.safetensors", "expected.safetensors")
HEAD = 4096
_MARK = b'"karat.bundle/'
_DEPTH = 3
"""suite/flow/leaf."""
_SHOWN = 5


class Place(Protocol):
    """Files under `/`-separated names that are safe: no `..`, no links, no two that collide."""

    name: str
    """As the user typed it."""
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
        raise UsageError(
            f"{name}: expected a folder or a zip of captured cases, found nothing there",
            next_command=str(Command("ls", "-l", str(path.parent))),
        ) from None
    except OSError as error:
        raise CannotVerify(
            f"{name}: expected to read a folder or a zip, but: {error.strerror or error}",
            next_command=str(Command("ls", "-ld", name)),
        ) from None
    raise UsageError(
        f"{name}: expected a folder or a zip of captured cases, found a device, pipe or socket",
        next_command=str(Command("ls", "-l", name)),
    )


def folders_above(path: str) -> Iterator[str]:
    """Every folder above a path, outermost first, starting with the empty text."""
    yield ""
    at = path.find("/")
    while at >= 0:
        yield path[:at]
        at = path.find("/", at + 1)


def candidates(paths: Iterable[str]) -> Iterator[str]:
    """Manifests by name; many programs have one, and a capture session keeps unfinished ones."""
    for path in paths:
        if not path.endswith(MANIFEST):
            continue  # most are not, and a repository has many
        *folders, name = path.split("/")
        if name == MANIFEST and not any(folder.startswith(OWN) for folder in folders):
            yield path


def case_folders(paths: Collection[str], head: Callable[[str], bytes]) -> frozenset[str]:
    """The folders that are cases: by what their manifest says, or by the tensors that lie beside it.

    A manifest that was damaged says nothing any more, and its case must not be lost for that. What lies
    inside a case is a file of it, whatever it is called.
    """
    found = {
        path[: -len(MANIFEST) - 1] for path in candidates(paths) if has_tensors(path, paths) or _MARK in head(path)
    }
    return frozenset(folder for folder in found if not (folder and found.intersection(folders_above(folder))))


def has_tensors(manifest: str, paths: Collection[str]) -> bool:
    """Whether tensors lie beside a manifest, whatever it says."""
    return any(f"{manifest[: -len(MANIFEST)]}{tensors}" in paths for tensors in TENSORS)


def capture_root(folder: str) -> str:
    """Where the capture directory of a case's folder begins, of which it is suite/flow/leaf."""
    return "/".join(folder.split("/")[:-_DEPTH])


def is_other_programs(data: bytes) -> bool:
    """Whether a manifest is intact and of another program; one that is damaged may be ours."""
    if _MARK in data[:HEAD]:
        return False
    try:
        content = msgspec.json.decode(data)
    except (msgspec.DecodeError, RecursionError):
        return False
    return not (isinstance(content, dict) and "identity" in content and "comparator" in content)


def has_case(root: Path) -> bool:
    """Whether a folder on disk holds a case somewhere; the first one decides."""
    for folder, names, files in os.walk(root):
        names[:] = sorted(name for name in names if name != ".git" and not name.startswith(OWN))
        if MANIFEST in files and (any(name in files for name in TENSORS) or _is_manifest(Path(folder, MANIFEST))):
            return True
    return False


def _is_manifest(path: Path) -> bool:
    try:
        with path.open("rb") as file:
            return _MARK in file.read(HEAD)
    except OSError:
        return False  # whoever reads the folder will say so


def is_of_zips(folder: Path) -> bool:
    """Whether there are zips in a folder and no file of another kind."""
    found = False
    for _, folders, files in os.walk(folder):
        folders.sort()
        if any(not file.endswith(".zip") and file != SUMS for file in files):
            return False
        found = found or any(file != SUMS for file in files)
    return found


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
